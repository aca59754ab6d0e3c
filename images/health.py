"""The images' health check: asks the role in this container for /health. Standard library only, started often."""

import http.client
import os
import sys

SECONDS = 4.0


def main() -> int:
    # The probe port speaks plain HTTP where the role's own port wants certificates.
    port = os.environ.get("PROBE_PORT") or os.environ.get("PORT")
    if not port:
        print("set PORT or PROBE_PORT", file=sys.stderr)
        return 1
    host = os.environ.get("HOST", "127.0.0.1")
    if host == "0.0.0.0":  # noqa: S104 - every address, so this one too
        host = "127.0.0.1"
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"port {port}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != http.client.OK:
        print(f"port {port}: status {status}", file=sys.stderr)
    return int(status != http.client.OK)


if __name__ == "__main__":
    sys.exit(main())
