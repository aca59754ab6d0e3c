"""What every role uses: settings, wire types, errors, the HTTP client and server, logs and metrics."""
