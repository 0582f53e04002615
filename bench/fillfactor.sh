# Fillfactor: what it does to the ledger's updates, its WAL and its size, for both ways an
# effect comes to its end.
# shellcheck shell=bash disable=SC2034,SC2154

works_file=$here/fillfactor.works
: "${fillfactors:=100 90 80 70 60 50}"

# A database each, so that no page is of another's making.
run_fillfactor() {
	local f
	for f in $fillfactors; do
		export PGDATABASE=ff$f
		sql -d postgres "CREATE DATABASE $PGDATABASE"
		sql 'CREATE EXTENSION effect'
		sql "ALTER TABLE effect.ledger SET (fillfactor = $f)"
		run_sql limit/schema textbook/schema ours/schema setup/held_jobs >/dev/null
		measure_fillfactor "$f"
	done
	report works
}

measure_fillfactor() {
	local name n
	for name in begin-complete batch-complete; do
		for n in $clients; do
			say "$name at fillfactor $1, $n client(s)"
			measure_sides "$name@$1" "$n" < <(sides_of "$name")
		done
	done
	sql "VACUUM (ANALYZE) effect.ledger"
	say "fillfactor $1: $(sql "SELECT round(pg_table_size('effect.ledger') / max(reltuples)) || ' bytes a row'
		FROM pg_class WHERE oid = 'effect.ledger'::regclass")"
}
