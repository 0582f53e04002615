# pg_cron runs sweep, for real: nobody else lifts a hand (DESIGN 4.7; issue 4).
#
# Workers are killed by SIGKILL after `go`, before and after they acted, with a job
# and without one. pg_cron sweeps: the runs are abandoned, the effects go unknown,
# their resolver looks, and each ends as the far side says. Two clusters at once,
# since pg_cron has two ways to run a command: a connection of its own, and a
# background worker, where `go` is only said for after the commit.

use strict;
use warnings;

# Before pg_cron 1.5 the shortest interval is a minute, and two sweeps are needed.
BEGIN { $ENV{TAP_TIMEOUT} ||= 400 }

use Test::More;
use EffectTest;

our $BOUND = 200;

chomp(my $share = `pg_config --sharedir`);
plan skip_all => 'pg_cron is not installed' unless -f "$share/extension/pg_cron.control";

sub start
{
	my ($mode) = @_;
	my $node = new_node("cron_$mode", bare => 1, conf => "fsync = off\nmax_worker_processes = 20\n"
		. "shared_preload_libraries = 'pg_cron'\ncron.database_name = 'postgres'\ncron.use_background_workers = $mode\n");
	$node->append_conf('postgresql.conf', sprintf "cron.host = '%s'\n", $node->host);
	$node->restart;
	my $dbh = session($node);
	$dbh->do('CREATE EXTENSION pg_cron');
	$dbh->do('CREATE EXTENSION effect');
	$dbh->do('CREATE TABLE far_side (target text)');
	$dbh->do('CREATE TABLE told (verdict text)');
	$dbh->do('CREATE ROLE sweeper LOGIN');
	$dbh->do(q(SELECT effect.grant_operator('sweeper')));
	$dbh->do('GRANT USAGE ON SCHEMA cron TO sweeper');
	$dbh->do(<<'SQL');
CREATE FUNCTION look(k uuid, t text, i jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb)
LANGUAGE sql AS $$
	SELECT CASE WHEN n > 0 THEN 'happened' ELSE 'did_not_happen' END::effect.finding,
		   pg_catalog.jsonb_build_object('seen', n), CASE WHEN n > 0 THEN '"found"'::jsonb END
	  FROM (SELECT pg_catalog.count(*) AS n FROM public.far_side f WHERE f.target = t) AS s $$;
SQL
	$dbh->do(q(SELECT effect.set_action('pay', settle => '1 millisecond', timeout => '1 millisecond', resolver => 'public.look')));
	return $node;
}

# A worker that dies at its point: it has written down that it got there.
sub killed_worker
{
	my ($node, $target, $job, $point) = @_;
	my $file = $node->basedir . '/landed';
	my $pid  = spawn(sub {
		my $dbh = session($node);
		my ($verdict, $token);
		$token = row($dbh, q(SELECT * FROM effect.claim_lease(?, 'w', '1 millisecond')), $job)->{fencing_token} if $job;
		$verdict = verdict($dbh, 'SELECT * FROM effect.begin_effect($$pay$$, ?, $${}$$, ?, ?)', $target, $job, $token);
		$dbh->do('INSERT INTO far_side VALUES (?)', undef, $target) if $point eq 'after' && $verdict eq 'go';
		note_line($file, "$target $verdict");
		kill 'KILL', $$;
	});
	waitpid $pid, 0;
	return ($? & 127) == 9 && grep { $_ eq "$target go" } lines_of($file);
}

my %node = map { $_ => start($_) } qw(off on);
my ($version) = value(session($node{off}), q(SELECT extversion FROM pg_extension WHERE extname = 'pg_cron')) =~ /^(\d+[.]\d+)/;
my ($major, $minor) = split /[.]/, $version;
my $every = $major > 1 || $minor >= 5 ? '2 seconds' : '* * * * *';
note "pg_cron $version, schedule '$every'";

for my $mode (sort keys %node)
{
	my $node = $node{$mode};
	my $dbh  = session($node);
	ok(killed_worker($node, 'acted', undef, 'after'), "$mode: a worker was killed after it acted");
	ok(killed_worker($node, 'not acted', undef, 'before'), "$mode: one before it acted");
	ok(killed_worker($node, 'acted, job', 'nightly', 'after'), "$mode: one with a job after it acted");
	ok(killed_worker($node, 'not acted, job', 'hourly', 'before'), "$mode: one with a job before it acted");
	is(value($dbh, q(SELECT count(*) FROM effect.ledger WHERE state = 'submitted')), 4, "$mode: four effects are left submitted");
	is(value($dbh, q(SELECT count(*) FROM effect.unknown)), 0, "$mode: nobody has written down that they are unknown");
	session($node, user => 'sweeper')->do(q(SELECT cron.schedule('sweep', ?, 'SELECT * FROM effect.sweep()')), undef, $every);
	$dbh->do(q(SELECT cron.schedule('mail', ?, $$INSERT INTO told SELECT verdict FROM effect.begin_effect('mail', 'from cron')$$)), undef, $every);
}

# From here on this test only looks.
my $shown = 'SELECT target, state, ending, response #>> $${}$$, attempt FROM effect.effects WHERE action = $$pay$$ ORDER BY target';
my $done = [ [ 'acted', 'done', 'resolved', 'found', 1 ], [ 'acted, job', 'done', 'resolved', 'found', 1 ],
	[ 'not acted', 'claimed', undef, undef, 1 ], [ 'not acted, job', 'claimed', undef, undef, 1 ] ];
for my $mode (sort keys %node)
{
	my $dbh = session($node{$mode});
	my $ended = eval {
		wait_until('pg_cron to resolve them', sub { value($dbh, q(SELECT count(*) = 0 FROM effect.effects WHERE action = 'pay' AND state IN ('submitted', 'unknown'))) }, $BOUND)
	};
	ok($ended, "$mode: every one of them was resolved") or diag explain $dbh->selectall_arrayref('SELECT * FROM cron.job_run_details');
	is_deeply($dbh->selectall_arrayref($shown), $done, "$mode: each as the far side says");
	is_deeply($dbh->selectall_arrayref(q(SELECT job_key, owner, outcome FROM effect.runs ORDER BY 1)),
		[ [ 'hourly', 'w', 'abandoned' ], [ 'nightly', 'w', 'abandoned' ] ], "$mode: the runs were abandoned");
	is(value($dbh, q(SELECT string_agg(DISTINCT role_name, ' ') FROM effect.journal WHERE event = 'unknown')), 'sweeper', "$mode: in the name of an ordinary operator");
	is(value($dbh, q(SELECT count(*) FROM effect.journal WHERE event = 'unknown')), 4, "$mode: each went unknown");
	is(value($dbh, q(SELECT count(DISTINCT effect_key) FROM effect.journal WHERE event = 'finding')), 4, "$mode: each was found out");
	is(value($dbh, q(SELECT count(*) FROM effect.unknown)), 0, "$mode: nothing is unknown any more");
	is(value($dbh, q(SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%sweep%' AND status = 'failed')), 0, "$mode: no sweep failed");
	cmp_ok(value($dbh, q(SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%sweep%' AND status = 'succeeded')), '>=', 1, "$mode: it was pg_cron that swept");
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'not acted'))), 'go', "$mode: what did not happen may be sent");
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'acted, job'))), 'done', "$mode: what happened may not");

	# The verdict of the first; later ones are busy.
	is(value($dbh, 'SELECT string_agg(verdict, $$ $$) FROM told WHERE verdict LIKE $$go%$$'), $mode eq 'on' ? 'go_after_commit' : 'go',
		"$mode: what a command of pg_cron itself is told");
}
$_->stop for values %node;
done_testing();
