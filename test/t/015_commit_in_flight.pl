# The moment between a COMMIT's fence check and its end (DESIGN 4.3, 4.4, 4.10).
#
# The check has passed, the row is not visible yet: nobody may take the job over
# in between, or a stale write would land after the new grant. postgres_fdw commits
# its far side in that very moment (callbacks run last-registered first), so a
# deferred trigger on the far table, waiting for a lock, holds the COMMIT there. A
# claim answers `held` after at most a second; what the operator does waits.

use strict;
use warnings;

use DBD::Pg qw(:async);
use Test::More;
use Time::HiRes qw(time);
use EffectTest;

my $node = new_node('inflight', conf => "fsync = off\n");
my $dbh  = session($node);
my $gate = session($node);

$dbh->do('CREATE EXTENSION postgres_fdw');
$dbh->do('CREATE TABLE far_work (who text)');
$dbh->do('CREATE TABLE near_work (who text)');
$dbh->do(sprintf(q(CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres')), $node->host, $node->port));
$dbh->do('CREATE USER MAPPING FOR CURRENT_USER SERVER loopback');
$dbh->do(q(CREATE FOREIGN TABLE gated_work (who text) SERVER loopback OPTIONS (table_name 'far_work')));
$dbh->do(<<'SQL');
CREATE FUNCTION wait_for_gate() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait_for_gate AFTER INSERT ON far_work
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_for_gate();
SQL

# An old holder whose COMMIT stands in the gate.  Its lease has run out.
my $n = 0;
sub commit_in_flight
{
	my ($level) = @_;
	my $job = 'job' . ++$n;
	my $old = session($node);
	$dbh->do('TRUNCATE near_work, far_work');
	$gate->do('SELECT pg_advisory_lock(1)');
	my $token = row($old, 'SELECT * FROM effect.claim_lease(?, $$old$$, $$1 millisecond$$)', $job)->{fencing_token};
	wait_expired($dbh, $job);
	$old->do("BEGIN ISOLATION LEVEL $level");
	$old->do('SELECT count(*) FROM gated_work');
	$old->do('SELECT effect.fence(?, ?)', undef, $job, $token);
	$old->do(q(INSERT INTO gated_work VALUES ('old')));
	$old->do(q(INSERT INTO near_work VALUES ('old')));
	$old->do('COMMIT', { pg_async => PG_ASYNC });
	wait_until('the far side to wait at the gate', sub {
		value($dbh, q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted)) });
	return ($old, $job, $token);
}

sub open_gate { $gate->do('SELECT pg_advisory_unlock(1)'); return }
sub rows { return value($dbh, 'SELECT count(*) FROM near_work') }

for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my ($old, $job) = commit_in_flight($level);
	my $began = time;
	is(verdict($dbh, 'SELECT * FROM effect.claim_lease(?, $$new$$, $$1 hour$$)', $job), 'held', "$level: a claim is told held");
	cmp_ok(time - $began, '<', 5, "$level: soon");
	is(value($dbh, 'SELECT count(*) FROM effect.claim_any(ARRAY[?], $$new$$, $$1 hour$$) WHERE verdict = $$granted$$', $job), 0, "$level: claim_any takes nothing");
	is(rows(), 0, "$level: the row is not there yet");
	open_gate();
	ok($old->pg_result, "$level: the COMMIT goes through");
	is(rows(), 1, "$level: and the row is there");
	is(verdict($dbh, 'SELECT * FROM effect.claim_lease(?, $$new$$, $$1 hour$$)', $job), 'granted', "$level: then the job can be taken over");
}

# Two fenced commits of one job do not wait for each other.
{
	my ($old, $job, $token) = commit_in_flight('READ COMMITTED');
	my $twin = session($node);
	$twin->do('SET lock_timeout = 5000');
	$twin->begin_work;
	$twin->do('SELECT effect.fence(?, ?)', undef, $job, $token);
	$twin->do(q(INSERT INTO near_work VALUES ('twin')));
	ok($twin->commit, 'a second fenced commit of the same run does not wait');
	open_gate();
	ok($old->pg_result, 'nor is the first one hurt');
	is(rows(), 2, 'both rows are there');
}

# What takes the job away for good waits for the commit: its row must not appear afterwards.
for my $case (
	[ 'revoke_lease', sub { my ($job) = @_; "SELECT effect.revoke_lease('$job', 'it hangs')" } ],
	[ 'bump_epochs', sub { 'SELECT effect.bump_epochs()' } ])
{
	my ($what, $sql) = @$case;
	my ($old, $job, $token) = commit_in_flight('READ COMMITTED');
	my $operator = session($node);
	$operator->do($sql->($job), { pg_async => PG_ASYNC });
	my $over = eval { wait_until("$what to come back", sub { $operator->pg_ready }, 1.5) };
	my $seen = rows();
	ok(!$over, "$what waits for a fenced commit in flight");
	open_gate();
	my $committed = eval { $old->pg_result; 1 };
	wait_until("$what to come back", sub { $operator->pg_ready });
	$operator->pg_result;
	is(rows(), $committed ? 1 : 0, "$what: the COMMIT was all or nothing");
	is(rows(), $over ? $seen : rows(), "$what: no row appeared after it had answered");
	ok(!value($dbh, 'SELECT effect.is_current(?, ?)', $job, $token), "$what: the token is superseded");
}

# The same with a prepared transaction, which nobody can hurry.
{
	my $old = session($node);
	$old->do(q(SELECT effect.claim_lease('prepared', 'old', '1 hour')));
	my $token = value($old, q(SELECT fencing_token FROM effect.leases WHERE job_key = 'prepared'));
	$old->begin_work;
	$old->do(q(SELECT effect.fence('prepared', ?)), undef, $token);
	$old->do(q(INSERT INTO near_work VALUES ('prepared')));
	$old->do(q(PREPARE TRANSACTION 'in flight'));
	my $operator = session($node);
	$operator->do('SET lock_timeout = 500');
	my $state = sqlstate_of($operator, 'SELECT effect.bump_epochs()');
	$dbh->do(q(COMMIT PREPARED 'in flight'));
	my $current = value($dbh, q(SELECT effect.is_current('prepared', ?)), $token);
	ok($state || $current, 'bump_epochs does not free a lease over a prepared fenced transaction')
	  or diag('it answered, and the prepared write landed afterwards');
}

# And a claim that is open when the epoch moves is not granted under the old one.
{
	my ($claimer, $operator) = (session($node), session($node));
	$dbh->do('SELECT effect.bump_epochs()');
	$claimer->begin_work;
	my $token = row($claimer, q(SELECT * FROM effect.claim_lease('open claim', 'x', '1 hour')))->{fencing_token};
	$operator->do('SELECT effect.bump_epochs()', { pg_async => PG_ASYNC });
	eval { wait_until('bump_epochs to come back', sub { $operator->pg_ready }, 1) };
	my $committed = eval { $claimer->commit; 1 };
	wait_until('bump_epochs to come back', sub { $operator->pg_ready });
	my $epoch = ($operator->pg_result, value($dbh, 'SELECT epoch FROM effect.cluster'))[1];
	my $live = value($dbh, q(SELECT count(*) FROM effect.leases WHERE status = 'live' AND fencing_token <= ? * (1 << 24)::bigint), $epoch);
	is($live, 0, 'after bump_epochs no lease is held under an older epoch') or diag("token $token, epoch $epoch");
}

$node->stop;
done_testing();
