# Peers: the same work by what people would pick from npm, through one driver.
# shellcheck shell=bash disable=SC2034,SC2154

# The peers of today want Node 20; Debian 12 has 18, so it is not installed from there.
find_node() {
	local major
	node=$(command -v "${NODE:-node}") || die '--peers needs Node 20 or later: put node on the PATH, or name it in NODE'
	major=$("$node" --version | sed 's/^v\([0-9]*\).*/\1/')
	[ "$major" -ge 20 ] || die "--peers needs Node 20 or later; $node is $("$node" --version) (NODE names another)"
	command -v npm >/dev/null || die '--peers needs npm'
}

# npm as whoever called us, with the configuration of its own home.
install_peers() {
	local log=$work/npm.log
	say 'npm: installing the peers'
	cp -R "$here/peers" "$work/bench/"
	(cd "$work/bench/peers" && npm ci --no-audit --no-fund --fetch-timeout=60000 --fetch-retries=2 --silent) >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; die 'npm ci failed'; }
	[ "$(id -u)" -ne 0 ] || chown -R postgres: "$work/bench/peers"
}

# What measure.sh runs a script by.
run_script() { run_node "$1" "$2"; }

run_node() {
	measurements=$((measurements + 1))
	as_user timeout $((seconds + 60)) env NODE_ENV=production "$node" "$work/bench/peers/run.js" "$1" "$2" "$seconds" \
		$((seed % 10000 * 1000 + measurements)) "${3:-}" >"$work/script.out" 2>&1 &
	script_pid=$!
	wait $script_pid || { script_pid=; return 1; }
	script_pid=
}

# Tables and known keys, which are not what is measured.
prepare_peers() {
	local side
	for side in pg-boss graphile-worker dbos; do
		seconds=1 run_node $side/effect 1 prepare ||
			{ failed=$((failed + 1)); say "FAILED: $side does not start"; tail -n 5 "$work/script.out"; }
	done
}

run_peers() {
	local name n versions
	works_file=$here/peers/works
	install_peers
	load_ledger 0 "$base_rows"
	prepare_peers
	versions=$(sed -n 's/^    "\(.*\)": "\([0-9.]*\)",\{0,1\}$/\1 \2/p' "$here/peers/package.json" | paste -sd, | sed 's/,/, /g')
	say "Node $("$node" --version), $versions"
	for name in effect duplicate lock; do
		for n in $clients; do
			say "$name, $n client(s)"
			measure_sides "$name" "$n" < <(sides_of $name)
		done
	done
	report peers
}
