#!/bin/sh
# A standby of compose.yaml: copies the primary once, and follows it from then on, or the standby that was
# promoted in its place. A server that was promoted stays so when it is started again.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    chmod 700 "$PGDATA"
    # What a copy that was cut off has left would be in the way.
    until rm -rf "$PGDATA"/* && pg_basebackup --host "$PRIMARY" --username "$POSTGRES_USER" --pgdata "$PGDATA/copy" --checkpoint fast; do
        sleep 1
    done
    touch "$PGDATA/copy/standby.signal"
    # PG_VERSION comes last: with it the copy is whole, and a standby's.
    mv "$PGDATA"/copy/[!P]* "$PGDATA"
    mv "$PGDATA/copy/PG_VERSION" "$PGDATA"
    rmdir "$PGDATA/copy"
fi
# Of the servers, the walreceiver takes the one that is a primary. A machine that is gone says nothing: by default a
# standby hears of it after a minute or more, and until it follows the promoted one no commit is answered.
exec postgres -c listen_addresses='*' -c wal_receiver_timeout=10s -c wal_retrieve_retry_interval=1s \
    -c "primary_conninfo=host=$SERVERS port=$PGPORT user=$POSTGRES_USER application_name=$(hostname) connect_timeout=3 target_session_attrs=read-write"
