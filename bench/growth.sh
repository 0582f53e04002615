# Growth: the same works on larger and larger ledgers, and claims on more and more jobs.
# shellcheck shell=bash disable=SC2154

run_growth() {
	local size had=0 n
	for size in $(tr ' ' '\n' <<<"$sizes" | sort -n); do
		load_ledger "$had" "$size"
		had=$size
		grow_ledger "$size"
	done
	for n in 1 100 100000; do grow_jobs "$n"; done
	report growth
	sizes_on_disk
}

# One job is for one client; where there are more, no two clients meet at one.
grow_jobs() {
	local n
	make_jobs "$1"
	sql 'VACUUM (ANALYZE) effect.lease'
	for n in $clients; do
		[ "$n" -le "$1" ] || continue
		say "claims on $1 job(s), $n client(s)"
		measure_sides "claim-release@$1" "$n" < <(sides_of claim-release)
	done
}

grow_ledger() {
	local name n
	say "sweep on $1 rows"
	measure_sides "sweep@$1" 1 < <(sides_of sweep)
	for name in duplicate begin-complete; do
		for n in $clients; do
			say "$name on $1 rows, $n client(s)"
			measure_sides "$name@$1" "$n" < <(sides_of $name | grep -v textbook)
		done
	done
}
