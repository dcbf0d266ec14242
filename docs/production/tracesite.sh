#!/bin/sh
# /usr/local/bin/tracesite: manage.py as the service runs it, with its user, settings and data. Needs root.
#   tracesite serve --check
set -eu
umask 077
set -a
. /etc/tracesite/tracesite.env
set +a
release=${TRACESITE_RELEASE:-/opt/tracesite/current}
cd "$release"
exec runuser -u tracesite -- "$release/.venv/bin/python" "$release/manage.py" "$@"
