# Run once by the postgres image, when it has made its files: others may copy them, and a commit is
# answered when one of the standbys has it on its disk too.
echo 'host replication all samenet trust' >>"$PGDATA/pg_hba.conf"
echo "synchronous_standby_names = 'ANY 1 (*)'" >>"$PGDATA/postgresql.conf"
