# A long job that is killed again and again applies each row once (DESIGN 4.8).
#
# 100,000 rows in batches, each with its checkpoint in the same transaction.
# SIGKILL hits a backend (the server crashes and recovers) or a client, at random
# moments; the next run goes on from the checkpoint its claim is given.  Once with
# a client's own loop, once with the batch loop of CALL effect.run_job.
#
# A gate that this file holds keeps a run from its end while a kill is to come, so
# that each kill lands, however fast the machine is.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);
use EffectTest;

my $rows = 100_000;
my $batch = 200;
my $kills = $ENV{KILLS} || 5;

seed();
my $node = new_node('checkpoint_kill');
my $dbh  = session($node);
$dbh->do(q(CREATE TABLE source AS SELECT n FROM generate_series(1, ?) n), undef, $rows);
$dbh->do(q(ALTER TABLE source ADD PRIMARY KEY (n)));
$dbh->do(q(CREATE TABLE applied (how text, n int, token bigint)));
$dbh->do(q(SELECT effect.set_job(?, overlap => 'coalesce', lease_for => '1 hour')), undef, $_) for qw(loop call);

# A batch: rows after the checkpoint, and the checkpoint after them; NULL: no more.
$dbh->do('CREATE TABLE gate AS SELECT 0 AS n');
$dbh->do(<<"SQL");
CREATE FUNCTION pass_gate(at int) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	IF at >= (SELECT n FROM gate) THEN PERFORM pg_advisory_xact_lock_shared(150); END IF;
END \$\$;
CREATE FUNCTION next_batch(how text, token bigint, checkpoint jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
	SELECT pass_gate(coalesce((checkpoint ->> 'n')::int, 0));
	WITH moved AS (
		INSERT INTO applied
		SELECT how, n, token FROM source
		 WHERE n > coalesce((checkpoint ->> 'n')::int, 0) ORDER BY n LIMIT $batch
		RETURNING n)
	SELECT jsonb_build_object('n', max(n)) FROM moved HAVING count(*) > 0 \$\$
SQL

# The client's loop: claim, batches, release.
sub run_loop
{
	my $s = session($node);
	my $lease = row($s, q(SELECT * FROM effect.claim_lease('loop', 'client', firing => 'once')));
	my ($token, $checkpoint) = ($lease->{fencing_token}, $lease->{checkpoint});
	return if $lease->{verdict} ne 'granted';
	while (1)
	{
		$s->begin_work;
		my $next = value($s, 'SELECT next_batch(?, ?, ?)', 'loop', $token, $checkpoint);
		if (!defined $next) { $s->rollback; last }
		value($s, 'SELECT effect.save_checkpoint(?, ?, ?)', 'loop', $token, $next) or die 'fenced';
		$s->commit;
		$checkpoint = $next;
	}
	$s->do('SELECT effect.release_lease(?, ?)', undef, 'loop', $token);
	return;
}

# The same by run_job, in a psql that is a process of its own.
sub run_call
{
	my @psql = ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'));
	open(STDERR, '>>', $node->basedir . '/psql') or die;
	exec @psql, '-c', q(CALL effect.run_job('call', 'SELECT next_batch($q$call$q$, $1, $3)', 'once', 'cron'));
}

sub kill_backend
{
	my ($pid) = @_;
	kill 'KILL', $pid or return 0;
	wait_until('the killed backend to be gone', sub { !kill 0, $pid });
	let_go();
	$dbh = wait_until('the server to be back', sub { session($node) });
	return 1;
}

# The run's backend: there is none but ours beside it.
my $others = "pid <> pg_backend_pid() AND backend_type = 'client backend'";

sub killed_again_and_again
{
	my ($how, $run, $who) = @_;
	my ($landed, %did) = (0);
	for my $round (1 .. 100)
	{
		my $before = value($dbh, 'SELECT count(*) FROM applied WHERE how = ?', $how);
		my $done = sub { value($dbh, 'SELECT count(*) FROM effect.runs WHERE job_key = ? AND outcome = $$finished$$', $how) };
		if ($landed < $kills)
		{
			$dbh->do('UPDATE gate SET n = ?', undef, $before + $batch + int(rand(($rows - $before) / 2)));
			$dbh->do('SELECT pg_advisory_lock(150)');
		}
		my $child = spawn($run);
		if ($landed < $kills)
		{
			wait_until("$how to get on", sub {
				value($dbh, 'SELECT count(*) > ? FROM applied WHERE how = ?', $before, $how) });
			jitter(0.15);
			# The backend of a CALL outlives its client, and finishes: that kill comes last.
			my $victim = ($how eq 'loop' ? $landed % 2 : $landed == $kills - 1) ? 'client' : 'backend';
			my $hit = $victim eq 'client' ? kill('KILL', $child)
				: kill_backend(value($dbh, "SELECT pid FROM pg_stat_activity WHERE $others"));
			$did{$victim}++, $landed++ if $hit;
			# Ours went down with the server, if a backend was the victim.
			$dbh->do('SELECT pg_advisory_unlock(150)') if $victim eq 'client';
		}
		waitpid $child, 0;
		# What a killed client leaves behind in the server ends before we look.
		wait_until("the backend of $how to end", sub { !value($dbh, "SELECT count(*) FROM pg_stat_activity WHERE $others") });
		last if $done->();
		is(value($dbh, 'SELECT count(*) FROM (SELECT n FROM applied WHERE how = ? GROUP BY n HAVING count(*) > 1) twice', $how), 0,
			"$how: killed, and nothing is there twice");
		is(value($dbh, 'SELECT coalesce((effect.get_checkpoint(?) ->> $$n$$)::int, 0)', $how),
			value($dbh, 'SELECT count(*)::int FROM applied WHERE how = ?', $how), "$how: the checkpoint is as far as the work");
		$dbh->do('SELECT effect.revoke_lease(?, $$it was killed$$)', undef, $how);
	}
	note("$how: kills that landed: " . join(", ", map { "$_ $did{$_}" } sort keys %did));
	is($landed, $kills, "$how: $landed kills landed");
	is_deeply(row($dbh, 'SELECT count(*)::int AS rows, count(DISTINCT n)::int AS different, count(DISTINCT token) > 1 AS resumed FROM applied WHERE how = ?', $how),
		{ rows => $rows, different => $rows, resumed => 1 }, "$how: each of $rows rows was applied exactly once, by several runs");
	is(value($dbh, 'SELECT effect.get_checkpoint(?)', $how), undef, "$how: a run that finishes clears its checkpoint");
	is(verdict($dbh, 'SELECT * FROM effect.claim_lease(?, $$late$$, firing => $$once$$)', $how), 'already_ran', "$how: and its firing has run");
	return;
}

killed_again_and_again('loop', \&run_loop);
killed_again_and_again('call', \&run_call);

let_go();
$node->stop;
done_testing();
