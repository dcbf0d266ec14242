#!/bin/sh
# Dumps the database of DATABASE_URL into a file of today, which has its name when it is whole; keeps two weeks.
set -eu
cd "${1:?where to: a directory}"
umask 077
pg_dump --format=custom --file=unfinished "$DATABASE_URL"
pg_restore --list unfinished > /dev/null
mv unfinished "tracesite-$(date -u +%F).dump"
find . -name 'tracesite-*.dump' -mtime +14 -delete
