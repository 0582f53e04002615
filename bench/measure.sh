# Measuring: one side of one work for one round, and what it left behind.
# shellcheck shell=bash disable=SC2154

rows=0 stride=1 jobs=0 measurements=0 script_pid=''
key_span=8000000000000000000        # of the keys that the limit's scripts make

# ---- what a ledger holds before

load_ledger() {
	local from=$1 to=$2
	rows=$to stride=$((key_span / to))
	say "loading a ledger of $to rows"
	run_sql from=$((from + 1)) to="$to" stride=$stride setup/load
	sql 'VACUUM (ANALYZE) effect.ledger'
	sql 'VACUUM (ANALYZE) bench_limit.ledger'
	set_mark
	make_jobs 64
	warm_up
	sql CHECKPOINT
}

# Read both ledgers, or the one that was loaded first would have more of it to fetch from disk.
warm_up() {
	sql 'CREATE EXTENSION IF NOT EXISTS pg_prewarm' 2>/dev/null ||
		{ say 'there is no pg_prewarm here: the first rounds read from disk'; return 0; }
	sql "SELECT pg_prewarm(t, 'read') FROM (
			SELECT unnest(ARRAY['effect.ledger', 'bench_limit.ledger']::regclass[]) AS t
			UNION ALL SELECT indexrelid FROM pg_index
				WHERE indrelid IN ('effect.ledger'::regclass, 'bench_limit.ledger'::regclass)) AS all_of_it" >/dev/null
}

make_jobs() { jobs=$1; run_sql jobs="$1" setup/jobs; }

# A call of sweep does a bounded amount of work, so the past takes as many as that needs.
# They go on until the mark no longer moves over what was loaded.
set_mark() {
	local behind="EXISTS (SELECT FROM effect.ledger
		WHERE created_at > COALESCE((SELECT max(swept_to) FROM effect.sweep_state), '-infinity')
		  AND created_at < now() - interval '1 hour')"
	while [ "$(sql "SELECT $behind")" = t ]; do sql 'SELECT effect.sweep()' >/dev/null; done
}

# ---- one measurement

# Counters of everything, taken when the clients' own have arrived: a backend hands them in as
# it exits.  Only one side runs at a time, so the difference is that side's.
counters() {
	sql "DO \$\$ BEGIN
			FOR i IN 1 .. 500 LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity
					WHERE backend_type = 'client backend' AND application_name <> 'psql');
				PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
			END LOOP;
		END \$\$;
		SELECT (SELECT pg_current_wal_insert_lsn() - '0/0'), (SELECT wal_fpi FROM pg_stat_wal),
			txid_snapshot_xmax(txid_current_snapshot()), sum(n_tup_upd), sum(n_tup_hot_upd), sum(n_tup_upd + n_tup_del)
		FROM pg_stat_user_tables" | tr '|' ' '
}

# peers.sh has another.
run_script() { run_pgbench "$@"; }

# One random seed a measurement, or a later one would meet the keys of an earlier one.
run_pgbench() {
	local script=$1 n=$2 threads
	threads=$(nproc)
	measurements=$((measurements + 1))
	as_user "$bindir/pgbench" -n -M prepared -f "$work/bench/$script.sql" -c "$n" -j $((n < threads ? n : threads)) \
		-T "$seconds" --random-seed=$((seed + measurements)) -D token=1 -D rows=$rows -D stride=$stride \
		-D jobs=$((jobs < n ? n : jobs)) -D clients="$n" -D started=0 -D k=0 >"$work/script.out" 2>&1 &
	script_pid=$!
	wait $script_pid || { script_pid=; return 1; }
	script_pid=
}

stop_measuring() { [ -z "$script_pid" ] || kill -TERM "$script_pid" 2>/dev/null || true; }

# measure NAME CLIENTS ROUND SCRIPT EFFECTS: a line of results.  NAME may be a work's, or one
# with a size behind it.
measure() {
	local name=$1 n=$2 round=$3 script=$4 effects=$5 before after
	before=$(counters)
	if ! run_script "$script" "$n"; then
		failed=$((failed + 1))
		say "FAILED: $name, $script at $n client(s)"
		grep -E '[Ee]rror:|ERROR' "$work/script.out" | sort | uniq -c | head -n 5 || true
		return 0
	fi
	after=$(counters)
	awk -v name="$name" -v n="$n" -v round="$round" -v script="$script" -v effects="$effects" \
		-v before="$before" -v after="$after" '
		/^number of transactions actually processed/ { done = $NF + 0 }
		/^latency average/ { latency = $4 }
		/^tps/ { tps = $3 }
		END {
			split(before, b, " "); split(after, a, " ")
			printf "%s\t%s\t%s\t%s\t%.3f\t%s\t%d", name, n, round, script, tps * effects, latency, done * effects
			for (i = 1; i <= 6; i++) printf "\t%d", a[i] - b[i]
			print ""
		}' "$work/script.out" >>"$work/results"
}

# ---- one work

sides_of() {
	awk -F'|' -v work="$1" '!/^#/ && $1 == work {
		if ($3 != "-") print $3, $4
		print $5, $6 }' "$works_file" | awk '!seen[$0]++'
}

clients_of() {
	awk -F'|' -v work="$1" -v all="$clients" '$1 == work { print $2 == "all" ? all : $2; exit }' "$works_file"
}

# measure_sides NAME CLIENTS, sides on standard input: A B A B ...
measure_sides() {
	local name=$1 n=$2 round script effects sides
	mapfile -t sides
	for ((round = 1; round <= rounds; round++)); do
		for side in "${sides[@]}"; do
			read -r script effects <<<"$side"
			measure "$name" "$n" "$round" "$script" "$effects"
		done
	done
}

measure_work() {
	local n
	for n in $(clients_of "$1"); do
		say "$1, $n client(s)"
		measure_sides "$1" "$n" < <(sides_of "$1")
	done
}

# ---- what is printed

report() { echo; awk -v report="$1" -f "$here/report.awk" "$works_file" "$work/results"; }

sizes_on_disk() {
	echo
	say 'on disk, bytes a row at the end (the ledgers hold begun and completed effects alike)'
	# What is still to be cleaned would count as index.
	as_user "$bindir/psql" -Xq <<-'END'
		\pset footer off
		SELECT name AS "table", round(n) AS rows, round(pg_table_size(name) / n) AS "table", i AS index,
		       round(pg_relation_size(i) / n) AS bytes
		  FROM (SELECT c.oid::regclass AS name, NULLIF(c.reltuples, -1)::numeric AS n, x.indexrelid::regclass AS i
		          FROM pg_class c JOIN pg_index x ON x.indrelid = c.oid
		         WHERE c.oid IN ('effect.ledger'::regclass, 'bench_limit.ledger'::regclass,
		                         'bench_textbook.effect'::regclass)) AS t
		 WHERE n > 0
		 ORDER BY name::text, i::text;
	END
}
