# The throw-away cluster of bench/run: what it needs, and where it lives.
# shellcheck shell=bash disable=SC2034,SC2154

shared_buffers=1GB
max_wal_size=8GB

# The newest PostgreSQL that has both a server and what extensions are built with.
find_postgres() {
	local config
	for config in ${PG_CONFIG:-$(printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | sort -t/ -k5,5nr)} \
		"$(command -v pg_config || true)"; do
		bindir=$("$config" --bindir 2>/dev/null) || continue
		if [ -x "$bindir/initdb" ] && [ -x "$bindir/pgbench" ] && [ -e "$("$config" --pgxs)" ] &&
			[ "$(major_of "$config")" -ge 15 ]; then
			pg_config=$config
			return 0
		fi
	done
	return 1
}

major_of() { "$1" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'; }
have_all() { find_postgres && has_compiler && { [ "$(id -u)" -ne 0 ] || id postgres >/dev/null 2>&1; }; }
has_compiler() {
	command -v make >/dev/null && echo '#include <stdio.h>' | gcc -fsyntax-only -x c - 2>/dev/null
}

# The server that only lacks its headers, else the distribution's default.
wanted_major() {
	local major
	major=$(find /usr/lib/postgresql -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2>/dev/null |
		sort -n | awk '$1 >= 15' | tail -n 1)
	[ -n "$major" ] || major=$(apt-cache show postgresql 2>/dev/null |
		sed -n 's/^Version: \([0-9][0-9]*\).*/\1/p' | sort -n | tail -n 1)
	printf '%s' "${major:-$default_major}"
}

install_needs() {
	local packages major log=$work/apt.log
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
		say 'apt: looking for what is missing'
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q >"$log" 2>&1 || { cat "$log" >&2; die 'apt-get update failed'; }
	fi
	major=$(wanted_major)
	packages="postgresql-$major postgresql-contrib postgresql-server-dev-$major make gcc libc6-dev"
	{ [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; } ||
		die "needs, under Debian's names: $packages (PG_CONFIG chooses among several servers)"
	say "apt: installing $packages"
	# shellcheck disable=SC2086
	apt-get install -y -q --no-install-recommends $packages >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; die 'apt-get install failed'; }
	have_all || die "still missing something of: $packages"
}

# Whoever owns the cluster: the user postgres for root, else ourselves.
as_user() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && exec runuser -u postgres -- "$@")
	else
		"$@"
	fi
}

# Everything lives in one directory that nobody else can look into, and the checkout, which
# postgres may not be able to read, is left alone.
make_work() {
	local base=${TMPDIR:-/tmp}
	[ ${#base} -le 60 ] || base=/tmp        # a socket's path is limited to 107 bytes
	work=$(mktemp -d "$base/effect-bench.XXXXXX")
	chmod 0700 "$work"
}

fill_work() {
	mkdir "$work/bench" "$work/socket" "$work/build"
	cp -R "$here/limit" "$here/textbook" "$here/ours" "$here/setup" "$work/bench/"
	# Objects from somebody else's build may be for another server.
	tar -C "$top" --exclude='*.o' --exclude='*.bc' --exclude='*.so' -cf - Makefile effect.control sql src |
		tar -C "$work/build" -xf -
	touch "$work/results"
	chmod -R u+rwX "$work"
	[ "$(id -u)" -ne 0 ] || chown -R postgres: "$work"
}

build_extension() {
	local log=$work/build.log sharedir libdir
	say "building effect for $("$pg_config" --version)"
	# JIT bitcode would need clang, and no statement here is long enough for JIT.
	as_user make -s -C "$work/build" -j2 with_llvm=no PG_CONFIG="$pg_config" >"$log" 2>&1 ||
		{ tail -n 40 "$log" >&2; die 'the build failed'; }
	libdir=$("$pg_config" --pkglibdir) sharedir=$("$pg_config" --sharedir)
	if [ -w "$libdir" ] && [ -w "$sharedir/extension" ]; then
		make -s -C "$work/build" install with_llvm=no PG_CONFIG="$pg_config" >>"$log" 2>&1 ||
			{ tail -n 40 "$log" >&2; die 'make install failed'; }
	elif cmp -s "$work/build/effect.so" "$libdir/effect.so"; then
		say "using the effect that is installed: it is this one"
	else
		die "$(id -un) may not write to $libdir; once: make && sudo make install PG_CONFIG=$pg_config"
	fi
}

# Nothing but the three settings without which no server of today is run; fsync stays on.
start_cluster() {
	as_user "$bindir/initdb" -D "$work/data" -U postgres -A trust --locale=C --encoding=UTF8 >"$work/initdb.log" 2>&1 ||
		{ cat "$work/initdb.log" >&2; die 'initdb failed'; }
	cat >>"$work/data/postgresql.conf" <<-END
		listen_addresses = ''
		unix_socket_directories = '$work/socket'
		unix_socket_permissions = 0700
		max_connections = 200
		shared_buffers = $shared_buffers
		max_wal_size = $max_wal_size
	END
	as_user "$bindir/pg_ctl" -D "$work/data" -l "$work/server.log" -w -s start ||
		{ cat "$work/server.log" >&2; die 'the cluster did not start'; }
	cluster=up
	export PGHOST=$work/socket PGPORT=5432 PGDATABASE=bench PGUSER=postgres
	unset PGPASSWORD PGSERVICE PGOPTIONS PGSSLMODE
	sql -d postgres 'CREATE DATABASE bench'
	sql 'CREATE EXTENSION effect'
	run_sql limit/schema textbook/schema ours/schema setup/held_jobs >/dev/null
}

# The last argument is the statement.
sql() { as_user "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 "${@:1:$#-1}" -c "${!#}"; }

# Files of bench/, and -v name=value for them.
run_sql() {
	local argument options=()
	for argument; do
		case $argument in
			*=*) options+=(-v "$argument") ;;
			*) options+=(-f "$work/bench/$argument.sql") ;;
		esac
	done
	as_user "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 "${options[@]}" || die "could not run $*"
}

stop_cluster() {
	[ ! -e "$work/data/postmaster.pid" ] ||
		as_user "$bindir/pg_ctl" -D "$work/data" -w -s -m immediate stop || true
}

say_where() {
	local as=''
	[ "$(id -u)" -ne 0 ] || as='runuser -u postgres -- '
	cat <<-END

		The cluster is up.  Look around:
		  $as$bindir/psql -h $work/socket -U postgres bench
		The scripts are in $work/bench, every measurement is a line of $work/results.
		When done:
		  $as$bindir/pg_ctl -D $work/data -m fast stop && rm -rf $work
	END
}
