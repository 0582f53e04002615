# run_job under pg_cron itself (DESIGN 4.2), with its workers and with its
# connections: entries of one minute run a firing once, an error is seen in both
# places, and a statement that outlives its lease commits nothing.
#
# pg_cron fires on the minute, so this waits for the next one, once, on two
# clusters at the same time.

use strict;
use warnings;

use Test::More;
use EffectTest;

my $sharedir = `pg_config --sharedir`;
chomp $sharedir;
plan skip_all => 'pg_cron is not installed' unless -f "$sharedir/extension/pg_cron.control";

# Entries of pg_cron, all in one transaction: it sees them together.
my @entries = (
	[ one   => q(CALL effect.run_job('tick', 'INSERT INTO ticks VALUES ($1, $2)')) ],
	[ two   => q(CALL effect.run_job('tick', 'INSERT INTO ticks VALUES ($1, $2)')) ],
	[ three => q(CALL effect.run_job('tick', 'INSERT INTO ticks VALUES ($1, $2)')) ],
	[ bad   => q(CALL effect.run_job('bad', 'INSERT INTO ticks VALUES ($1, $2); SELECT 1 / 0')) ],
	[ slow  => q(CALL effect.run_job('slow', 'SELECT outlive($1)')) ],
	[ batch => q(CALL effect.run_job('batch', 'SELECT one_more($3)')) ],
);

sub scheduled
{
	my ($workers) = @_;
	my $node = new_node("cron_$workers", bare => 1, conf => <<"CONF");
shared_preload_libraries = 'pg_cron'
cron.database_name = 'postgres'
cron.use_background_workers = $workers
max_worker_processes = 20
CONF
	$node->append_conf('postgresql.conf', sprintf "cron.host = '%s'\n", $node->host);
	$node->restart;
	my $dbh = session($node);
	$dbh->do("CREATE EXTENSION $_") for qw(pg_cron effect);
	$dbh->do($_) for split /;;/, <<'SQL';
CREATE TABLE ticks (token bigint, firing text);;
CREATE TABLE slow_work (token bigint);;
CREATE TABLE batches (n int);;
CREATE FUNCTION outlive(mine bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO slow_work VALUES (mine);
	FOR i IN 1 .. 3000 LOOP
		EXIT WHEN EXISTS (SELECT FROM effect.leases WHERE job_key = 'slow' AND fencing_token > mine);
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;;
CREATE FUNCTION one_more(checkpoint jsonb) RETURNS jsonb LANGUAGE sql AS $$
	WITH i AS (INSERT INTO batches VALUES (coalesce(checkpoint::int, 0)) RETURNING n)
	SELECT to_jsonb(n + 1) FROM i WHERE n < 4 $$;;
SELECT effect.set_job(j, every => '1 minute', overlap => 'coalesce', lease_for => '30 seconds') FROM unnest('{tick,bad,batch}'::text[]) j;;
SELECT effect.set_job('slow', every => '1 minute', overlap => 'coalesce', lease_for => '1 second')
SQL
	$dbh->begin_work;
	$dbh->do('SELECT cron.schedule(?, ?, ?)', undef, $_->[0], '* * * * *', $_->[1]) for @entries;
	$dbh->commit;
	return ($node, $dbh);
}

sub looked_at
{
	my ($how, $dbh) = @_;
	wait_until("pg_cron's minute", sub { value($dbh, q(SELECT fencing_token FROM effect.leases WHERE job_key = 'slow')) }, 90);
	wait_expired($dbh, 'slow');
	is(verdict($dbh, q(SELECT * FROM effect.claim_lease('slow', 'thief', '1 hour', 'thief'))), 'granted', "$how: a lease that ran out is taken");
	wait_until('every entry to end', sub { value($dbh, q(SELECT count(DISTINCT jobid) = 6 AND bool_and(end_time IS NOT NULL) FROM cron.job_run_details)) });
	$dbh->do('SELECT cron.unschedule(jobid) FROM cron.job');
	wait_until('every entry to end', sub { value($dbh, q(SELECT bool_and(end_time IS NOT NULL) FROM cron.job_run_details)) });

	my $details = sub { join ' ', map { "$_->[0] $_->[1]" } @{ $dbh->selectall_arrayref(q(
		SELECT DISTINCT d.status, regexp_replace(d.return_message, '\s+', ' ', 'g') FROM cron.job_run_details d
		 WHERE d.command LIKE ?), undef, "%run_job('$_[0]'%") } };
	cmp_ok(value($dbh, q(SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%''tick''%')), '>=', 3, "$how: three entries fired");
	is(value($dbh, 'SELECT count(*) - count(DISTINCT firing) FROM ticks'), 0, "$how: and their firing ran once");
	is(value($dbh, q(SELECT string_agg(DISTINCT outcome::text, ' ') FROM effect.runs WHERE job_key = 'tick')), 'finished', "$how: and finished");
	is(value($dbh, q(SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%''tick''%' AND status <> 'succeeded')), 0, "$how: an entry that came second is no failure");
	is(value($dbh, q(SELECT count(*) FROM ticks WHERE firing IS NULL)), 0, "$how: the firing is the minute's name");

	like($details->('bad'), qr/^failed .*division by zero/, "$how: pg_cron logs the error of a command");
	is_deeply(row($dbh, q(SELECT outcome, detail ->> 'sqlstate' AS state, detail ->> 'error' AS error FROM effect.runs WHERE job_key = 'bad' ORDER BY fencing_token LIMIT 1)),
		{ outcome => 'failed', state => '22012', error => 'division by zero' }, "$how: and so does the run");
	is(value($dbh, q(SELECT owner IS NULL FROM effect.leases WHERE job_key = 'bad')), 1, "$how: whose lease is free");

	is(value($dbh, 'SELECT count(*) FROM slow_work'), 0, "$how: the slow statement committed nothing");
	like($details->('slow'), qr/failed .*fenced/, "$how: pg_cron logs that it was fenced");
	is(value($dbh, q(SELECT outcome FROM effect.runs WHERE job_key = 'slow' AND fencing_token = 1)), 'fenced', "$how: its run is fenced");
	is(value($dbh, q(SELECT owner FROM effect.leases WHERE job_key = 'slow')), 'thief', "$how: and the thief's lease is as it was");

	is(value($dbh, q(SELECT string_agg(n::text, ' ' ORDER BY n) FROM (SELECT DISTINCT n FROM batches) b)), '0 1 2 3 4', "$how: a batch loop goes to its end");
	is(value($dbh, q(SELECT count(*) FROM batches)) / 5, value($dbh, q(SELECT count(*) FROM effect.runs WHERE job_key = 'batch' AND outcome = 'finished')), "$how: each batch once a run");
	return;
}

my %at = map { $_ => [ scheduled($_) ] } qw(off on);
looked_at("workers $_", $at{$_}[1]) for qw(off on);
$at{$_}[0]->stop for qw(off on);
done_testing();
