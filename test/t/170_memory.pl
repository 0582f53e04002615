# A session that works for a long time does not grow: a million fenced writes and a
# hundred thousand lease cycles, and its memory stays where it was.

use strict;
use warnings;

use EffectTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $LIMIT = 64 * 1024;
my $WRITES = $ENV{MEMORY_WRITES} || 1_000_000;
my $CYCLES = $ENV{MEMORY_CYCLES} || 100_000;

my $node = new_node('memory', conf => "fsync = off\nautovacuum = off\nshared_buffers = 128MB\nmax_wal_size = 4GB\n");
my $dbh = session($node);

# Loops that commit as a worker would, so that a transaction's own memory is no part of it.
$dbh->do(q(
CREATE PROCEDURE fenced_writes(n int, a_transaction int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n / a_transaction LOOP
		PERFORM effect.fence('memory', 1) FROM generate_series(1, a_transaction / 2);
		PERFORM effect.is_current('memory', 1) FROM generate_series(1, a_transaction / 2);
		COMMIT;
	END LOOP;
END $$));
$dbh->do(q(
CREATE PROCEDURE lease_cycles(n int) LANGUAGE plpgsql AS $$
DECLARE
	token bigint;
BEGIN
	FOR i IN 1 .. n LOOP
		SELECT c.fencing_token INTO token FROM effect.claim_lease('cycle', 'w', '1 hour') c;
		PERFORM effect.release_lease('cycle', token);
		IF i % 20 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END $$));
$dbh->do(q(
CREATE PROCEDURE effects(n int) LANGUAGE plpgsql AS $$
DECLARE
	key uuid;
BEGIN
	FOR i IN 1 .. n LOOP
		SELECT b.effect_key INTO key FROM effect.begin_effect('memory', 't' || i || clock_timestamp(), '{"n": 1}', 'memory', 1) b;
		COMMIT;
		PERFORM effect.complete_effect(key, 1, '{"a": "answer"}');
		PERFORM effect.begin_effect('memory', 'once', '{}', 'memory', 1);
		COMMIT;
	END LOOP;
END $$));
$dbh->do(q(SELECT effect.set_job('cycle', overlap => 'coalesce', lease_for => '1 hour')));
$dbh->do(q(SELECT effect.claim_lease('memory', 'w', '1 hour')));

# What the session has taken from the system, caches and all.
sub held { return value($dbh, 'SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts') }

sub does_not_grow
{
	my ($what, $warm, $work) = @_;
	$dbh->do($warm);
	held();
	my $before = held();
	$dbh->do($work);
	my $grown = held() - $before;
	cmp_ok($grown, '<', $LIMIT, "$what: less than 64 kB");
	note("$what: $grown bytes");
	return;
}

does_not_grow("$WRITES fenced writes", 'CALL fenced_writes(20000, 2000)', "CALL fenced_writes($WRITES, 2000)");
does_not_grow("$CYCLES lease cycles", 'CALL lease_cycles(200)', "CALL lease_cycles($CYCLES)");
does_not_grow('20000 effects', 'CALL effects(200)', 'CALL effects(20000)');

# What is remembered of registrations is bounded: actions that nobody registered, each once.
does_not_grow('30000 actions that nobody registered',
	q(SELECT count(e.verdict) FROM generate_series(1, 3000) i, effect.explain_effect('warm ' || i, 't') e),
	q(SELECT count(e.verdict) FROM generate_series(1, 30000) i, effect.explain_effect('work ' || i, 't') e));

# Tables as they were made are used without statements: none of the lines that tell otherwise.
$dbh->do(q(SET log_min_messages = debug1));
my $other = session($node, options => '-clog_min_messages=debug1');
$other->do(q(SELECT effect.claim_lease('debug', 'w', '1 hour', 'f')));
$other->do(q(SELECT effect.release_lease('debug', 1)));
$other->do(q(SELECT effect.once('debug', 't')));
unlike(slurp_file($node->logfile), qr/it is used through statements/, 'no table needs a statement');
$other->do(q(CREATE RULE r AS ON UPDATE TO effect.lease DO ALSO NOTHING));
$other->do(q(SELECT effect.claim_lease('debug', 'w', '1 hour', 'g')));
like(slurp_file($node->logfile), qr/effect\.lease is not as it was made/, 'one that was changed does');

done_testing();
