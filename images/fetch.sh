#!/bin/sh
# Runs a command that fetches packages. Where from, and whom to trust, is this build's own affair: it comes in secrets,
# which no layer and no history holds.
set -eu
secrets=/run/secrets
if [ -s "$secrets/environ" ]; then
    set -a
    . "$secrets/environ"
    set +a
fi
if [ -s "$secrets/pip" ]; then
    export PIP_CONFIG_FILE="$secrets/pip"
fi
if [ -s "$secrets/ca" ]; then
    export SSL_CERT_FILE="$secrets/ca" PIP_CERT="$secrets/ca"
fi
exec "$@"
