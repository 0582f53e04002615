# Behind a pooler in transaction mode the holder is a token, never a session
# (DESIGN 1, 5; cases 12, 20 and 31).
#
# pgbouncer with two server connections and DISCARD ALL after each transaction:
# every statement may run on another backend than the one before it, two clients
# may share one, and nothing may be remembered between statements.

use strict;
use warnings;

use Test::More;
use EffectTest;
use PostgreSQL::Test::Utils;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'pgbouncer is not installed' unless $pgbouncer;

my $node = new_node('pooled', conf => "fsync = off\n");
my $dir  = $node->basedir;
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $user = getpwuid($<);

open(my $ini, '>', "$dir/pgbouncer.ini") or die $!;
print $ini <<"INI";
[databases]
postgres = host=@{[ $node->host ]} port=@{[ $node->port ]} dbname=postgres
[pgbouncer]
unix_socket_dir = @{[ $node->host ]}
listen_addr =
listen_port = $port
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 50
server_reset_query = DISCARD ALL
server_reset_query_always = 1
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
pidfile = $dir/pgbouncer.pid
logfile = $dir/pgbouncer.log
INI
close $ini;
# auth_type = any logs everybody in as the user the [databases] line names.
{
	my $text = slurp_file("$dir/pgbouncer.ini");
	$text =~ s/dbname=postgres/dbname=postgres user=$user/;
	open(my $out, '>', "$dir/pgbouncer.ini") or die $!;
	print $out $text;
	close $out;
}

system_or_bail($pgbouncer, '-q', '-d', "$dir/pgbouncer.ini");
my $bouncer = wait_until('pgbouncer to start', sub { my ($pid) = lines_of("$dir/pgbouncer.pid"); $pid });
END { kill 'TERM', $bouncer if $bouncer }

sub pooled { return wait_until('pgbouncer to answer', sub { session($node, port => $port) }) }
my ($c1, $c2) = (pooled(), pooled());
my $direct = session($node);

# Statement by statement, on whichever backend.
my %backends;
my $backend = sub { $backends{ value($c1, 'SELECT pg_backend_pid()') }++ };
is(row($c1, q(SELECT * FROM effect.claim_lease('mig', 'pod-1', '1 hour')))->{fencing_token}, 1, 'claimed');
for (1 .. 10)
{
	$backend->();
	$c2->do('SELECT 1');
	ok(value($c1, q(SELECT effect.renew_lease('mig', 1))), "renewal $_");
}
cmp_ok(scalar(keys %backends), '<=', 2, 'at most two backends served it');
is(verdict($c2, q(SELECT * FROM effect.claim_lease('mig', 'pod-2', '1 hour'))), 'held', 'another client is told held');
is(verdict($c2, q(SELECT * FROM effect.claim_lease('mig', 'pod-1', '1 hour'))), 'held', 'under the same name as well');
for my $n (1 .. 20)
{
	my $v = verdict($n % 2 ? $c1 : $c2, q(SELECT * FROM effect.claim_lease('mig', 'pod-1', '1 hour')));
	is($v, 'held', 'held, on whichever backend') if $v ne 'held' || $n == 20;
}

# A fenced transaction is one transaction, hence one backend.
$c1->do('CREATE TABLE work (who text)');
$c1->begin_work;
$c1->do(q(SELECT effect.fence('mig', 1)));
$c1->do(q(INSERT INTO work VALUES ('pod-1')));
$c2->do('SELECT 1') for 1 .. 5;
$c1->commit;
is(value($direct, 'SELECT count(*) FROM work'), 1, 'a fenced transaction commits');

# The next transaction on the same backend belongs to nobody.
$c1->begin_work;
$c1->do(q(SELECT effect.fence('mig', 1)));
$c1->do(q(INSERT INTO work VALUES ('stale')));
$direct->do(q(SELECT effect.revoke_lease('mig', 'test')));
is(sqlstate_of($c1, 'COMMIT'), 'LE001', 'a stale one does not');
eval { $c1->rollback };
my $stale = 0;
for my $n (1 .. 10) { my $c = $n % 2 ? $c1 : $c2; $stale++ if sqlstate_of($c, q(INSERT INTO work VALUES ('not fenced'))) }
is($stale, 0, 'and leaves no fence behind on its backend');

# Effects: begun on one backend, completed on another.
for my $n (1 .. 10)
{
	my ($x, $y) = $n % 2 ? ($c1, $c2) : ($c2, $c1);
	my $e = row($x, 'SELECT * FROM effect.begin_effect($$pay$$, ?)', "order-$n");
	is($e->{verdict}, 'go', "order-$n: go");
	is(verdict($y, 'SELECT * FROM effect.begin_effect($$pay$$, ?)', "order-$n"), 'busy', "order-$n: busy for the others");
	is(verdict($y, 'SELECT * FROM effect.complete_effect(?, ?)', $e->{effect_key}, $e->{fencing_token}), 'done', "order-$n: done");
}

# A client that goes away while it holds: nothing to clean up but the time.
my $gone = pooled();
$gone->do(q(SELECT effect.claim_lease('short', 'gone', '300 milliseconds')));
my $pid = spawn(sub { my $c = pooled(); $c->begin_work; $c->do(q(SELECT effect.claim_lease('inside', 'killed', '1 hour'))); kill 'KILL', $$ });
waitpid $pid, 0;
$gone->disconnect;
wait_until('the expired lease to be taken', sub { verdict($c2, q(SELECT * FROM effect.claim_lease('short', 'next', '1 hour'))) eq 'granted' });
pass('an expired lease is taken over');
wait_until('the killed client to be rolled back', sub { verdict($c2, q(SELECT * FROM effect.claim_lease('inside', 'next', '1 hour'))) eq 'granted' });
is(value($direct, q(SELECT fencing_token FROM effect.leases WHERE job_key = 'inside')), 1, 'what it had claimed in a block was never granted');

ok(value($c1, q(SELECT effect.release_lease('short', 2))), 'released from another connection than it was claimed on');
is(value($direct, q(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')), 0, 'no lock outlives its transaction');

$_->disconnect for $c1, $c2;
kill 'TERM', $bouncer;
undef $bouncer;
$node->stop;
done_testing();
