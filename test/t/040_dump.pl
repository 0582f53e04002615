# pg_dump and restore, and a template copy: nothing is forgotten, nothing restarts
# at 1 (DESIGN promise 2, 4.10, 5; case 35).
#
# The rows that come back are the rows that were dumped; the next token is higher;
# leases come back free, what was in flight is unknown, and the guards are there.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use EffectTest;

my $node = new_node('dump', conf => "fsync = off\n");
my $dir  = $node->basedir;
$ENV{PGOPTIONS} = '';

$node->safe_psql('postgres', 'DROP EXTENSION effect');
$node->safe_psql('postgres', q(CREATE DATABASE origin));
$node->safe_psql('origin', 'CREATE EXTENSION effect');
my $from = session($node, db => 'origin');

# Two jobs with tokens 40 and 41, effects in every state, a journal, a finished firing.
for my $job ([ 'forty', 40 ], [ 'more', 41 ])
{
	for my $n (1 .. $job->[1])
	{
		$from->do('SELECT effect.claim_lease(?, $$w$$, $$1 hour$$, ?)', undef, $job->[0], "firing $n");
		$from->do('SELECT effect.release_lease(?, ?)', undef, $job->[0], $n) if $n < $job->[1];
	}
}
for my $n (1 .. 100)
{
	$from->do('SELECT effect.begin_effect($$pay$$, ?, $${"n": 1}$$, $$forty$$, 40)', undef, "done $n");
	$from->do('SELECT effect.complete_effect(effect.effect_key($$pay$$, ?, effect.input_digest($${"n": 1}$$)), 40, $${"ok": true}$$)', undef, "done $n");
}
for my $n (1 .. 3)
{
	$from->do('SELECT effect.begin_effect($$pay$$, ?)', undef, "unknown $n");
	$from->do("SELECT effect.mark_unknown(" . key_of('pay', "unknown $n") . ", 1, 'timed out')");
}
$from->do(q(SELECT effect.begin_effect('pay', 'in flight', '{}', 'forty', 40)));
$from->do(q(SELECT effect.begin_effect('pay', 'in flight, no job')));
$from->do(q(SELECT effect.claim_effect('pay', 'claimed', '{}', 'more', 41)));
$from->do(q(SELECT effect.claim_effect('pay', 'closed')));
$from->do('SELECT effect.close_effect(' . key_of('pay', 'closed') . q{, 'voided')});
$from->do(q(SELECT effect.once('seen', '{evt_1,evt_2,evt_3,evt_4,evt_5}'::text[])));
$from->do(q(CREATE TABLE fenced_work (who text)));
$from->do(q(SELECT effect.require_fence('fenced_work', 'forty')));

# What the session counted is written as it ends.
$from->disconnect;
$from = session($node, db => 'origin');
wait_until('the session before to end', sub { !value($from,
	q(SELECT count(*) FROM pg_stat_activity WHERE datname = 'origin' AND pid <> pg_backend_pid())) });

my @tables = map { $_->[0] } @{ $from->selectall_arrayref(
	q(SELECT relname FROM pg_class WHERE relnamespace = 'effect'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1)) };
cmp_ok(scalar @tables, '>=', 7, 'tables: ' . join(' ', @tables));

# Every table by content, as the superuser who dumped it.
sub contents
{
	my ($dbh) = @_;
	return { map { $_ => value($dbh, "SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, E'\\n' ORDER BY t::text)), '') FROM effect.$_ t") } @tables };
}
my $was = contents($from);
my $journal_at = value($from, q(SELECT max(id) FROM effect.journal));
unlike($was->{$_}, qr/^0 /, "$_ has rows to lose") for qw(cluster counter_delta firing journal_entry lease ledger run unknown);

my @ways = (
	[ 'custom',   [ 'pg_dump', '-Fc', '-f', "$dir/custom", 'origin' ],
		sub { [ 'pg_restore', '--exit-on-error', '-d', $_[0], "$dir/custom" ] } ],
	[ 'plain',    [ 'pg_dump', '-f', "$dir/plain.sql", 'origin' ],
		sub { [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', "$dir/plain.sql" ] } ],
	[ 'parallel', [ 'pg_dump', '-Fd', '-j2', '-f', "$dir/parallel", 'origin' ],
		sub { [ 'pg_restore', '--exit-on-error', '-j2', '-d', $_[0], "$dir/parallel" ] } ],
	[ 'twice',    [ 'pg_dump', '-Fc', '-f', "$dir/twice", 'origin' ],
		sub { [ 'sh', '-c', "pg_restore --exit-on-error --section=pre-data -d $_[0] $dir/twice && " .
			"pg_restore --exit-on-error --section=data --section=post-data -d $_[0] $dir/twice" ] } ],
	[ 'template', undef, undef ],
);

for my $way (@ways)
{
	my ($name, $dump, $restore) = @$way;
	my $to = "copy_$name";
	if ($dump)
	{
		$node->command_ok($dump, "$name: dumped");
		$node->safe_psql('postgres', "CREATE DATABASE $to TEMPLATE template0");
		$node->command_ok($restore->($to), "$name: restored without an error");
	}
	else
	{
		$from->disconnect;
		$node->safe_psql('postgres', "CREATE DATABASE $to TEMPLATE origin");
	}
	my $dbh = session($node, db => $to);
	is_deeply(contents($dbh), $was, "$name: every row of every table is there");
	is(value($dbh, 'SELECT count(*) FROM effect.fence_gaps()'), 0, "$name: the user's fence has no gap");

	# The first call notices that this is another place.
	is(value($dbh, q(SELECT effect.renew_lease('forty', 40))), undef, "$name: the old holder is fenced here");
	is(verdict($dbh, q(SELECT * FROM effect.claim_lease('forty', 'here', '1 hour'))), 'quarantined', "$name: and nothing is claimed before somebody says so");
	$dbh->do('SELECT effect.adopt_cluster()');
	my $r = row($dbh, q(SELECT * FROM effect.claim_lease('forty', 'here', '1 hour')));
	is($r->{verdict}, 'granted', "$name: the lease comes back free");
	cmp_ok($r->{fencing_token}, '>', 41, "$name: the next token, $r->{fencing_token}, is higher than any before");
	is(verdict($dbh, q(SELECT * FROM effect.claim_lease('more', 'here', '1 hour', 'firing 3'))), 'already_ran', "$name: a finished firing stays finished");
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'done 7', '{"n": 1}'))), 'done', "$name: done is done");
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'unknown 2'))), 'unknown', "$name: unknown stays unknown");
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'in flight', '{}', 'forty', ?)), $r->{fencing_token}), 'unknown', "$name: in flight is unknown");
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'closed'))), 'closed', "$name: closed is closed");
	is(value($dbh, q(SELECT effect.once('seen', 'evt_3'))), 0, "$name: seen is seen");
	cmp_ok(value($dbh, 'SELECT max(id) FROM effect.journal'), '>', $journal_at, "$name: the journal goes on where it was");
	is(value($dbh, 'SELECT count(*) - count(DISTINCT id) FROM effect.journal'), 0, "$name: with no number twice");

	# Guards are triggers: they come with the extension, not with the dump.
	is(sqlstate_of($dbh, q(DELETE FROM effect.lease)), 'LE012', "$name: leases are guarded");
	is(sqlstate_of($dbh, q(UPDATE effect.lease SET fencing_token = 1 WHERE job_key = 'forty')), 'LE012', "$name: tokens are guarded");
	is(sqlstate_of($dbh, q(UPDATE effect.ledger SET state = 'claimed', ending = NULL WHERE target = 'done 7')), 'LE012', "$name: states are guarded");
	is(sqlstate_of($dbh, q(TRUNCATE effect.ledger)), 'LE012', "$name: TRUNCATE is guarded");
	is(sqlstate_of($dbh, q(INSERT INTO fenced_work VALUES ('stale'))), 'LE007', "$name: the user's table wants a fence");
	$dbh->disconnect;
}

# A dump of the copy is as good as the original: two moves, not one.
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/again", 'copy_custom' ], 'again: dumped');
$node->safe_psql('postgres', 'CREATE DATABASE again TEMPLATE template0');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'again', "$dir/again" ], 'again: restored');
{
	my $copy = session($node, db => 'copy_custom');
	my $dbh  = session($node, db => 'again');
	my $old  = value($copy, q(SELECT max(fencing_token) FROM effect.leases));
	$dbh->do('SELECT effect.adopt_cluster()');
	cmp_ok(row($dbh, q(SELECT * FROM effect.claim_lease('forty', 'x', '1 hour')))->{fencing_token}, '>', $old, 'again: the next token is higher still');
}

$node->stop;
done_testing();
