# Nothing is sent from a clone (DESIGN 4.10; issue 7).
#
# A dump restored into another database, a template copy, a promotion under both
# settings of effect.after_failover, a physical copy that its configuration calls
# another site, and the button pressed by hand: claims and outside effects answer
# `quarantined`, what was in flight is unknown; completing, resolving, sweep and
# inside effects go on; effect.adopt_cluster() ends it, under higher tokens. What
# is no move (a restart, the original) is not taken for one.

use strict;
use warnings;

use Test::More;
use EffectTest;

$ENV{PGOPTIONS} = '';
my $node = new_node('origin', bare => 1, init => { allows_streaming => 1 }, conf => "fsync = off\nmax_wal_senders = 5\nwal_sender_timeout = 0\n");
my $dir  = $node->basedir;
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', 'CREATE EXTENSION effect');
my $from = session($node, db => 'shop');

# One effect in each state, with a job and without; attempts that last an hour.
$from->do(q(SELECT effect.set_action('pay', settle => '1 millisecond', timeout => '1 hour')));
$from->do(q(SELECT effect.claim_lease('nightly', 'holder', '1 hour')));
$from->do(q(SELECT effect.begin_effect('pay', 'in flight, job', '{}', 'nightly', 1)));
$from->do(q(SELECT effect.begin_effect('pay', 'in flight')));
$from->do(q(SELECT effect.begin_effect('pay', 'done')));
$from->do('SELECT effect.complete_effect(' . key_of('pay', 'done') . q{, 1, '"paid"')});
$from->do(q(SELECT effect.claim_effect('pay', 'reserved')));
$from->do(q(SELECT effect.claim_effect('pay', 'reserved, job', '{}', 'nightly', 1)));
$from->do(qq(SELECT effect.begin_effect('pay', '$_'))) for 'unknown', 'unknown too';
$from->do('SELECT effect.mark_unknown(' . key_of('pay', $_) . ", 1, 'timed out')") for 'unknown', 'unknown too';
$from->do(q(SELECT effect.once('seen', 'evt_1')));

my $claim  = q(SELECT * FROM effect.claim_lease('other', 'here', '1 hour'));
my $begin  = q(SELECT * FROM effect.begin_effect('pay', ?));
my $submit = 'SELECT * FROM effect.submit_effect(' . key_of('pay', 'reserved') . ', 1)';
sub quarantined { return value($_[0], 'SELECT quarantined_since IS NOT NULL FROM effect.cluster') ? 1 : 0 }
sub states { return { map { @$_ } @{ $_[0]->selectall_arrayref('SELECT target, state FROM effect.effects WHERE action = $$pay$$') } } }

# What is to be seen in a place that is not to act.  `first` is the first call there.
sub check_quarantined
{
	my ($dbh, $what, $first) = @_;
	is(verdict($dbh, $first || $claim), 'quarantined', "$what: the very first call is told so");
	is(verdict($dbh, $claim), 'quarantined', "$what: no lease is granted");
	is(verdict($dbh, q(SELECT * FROM effect.claim_any('{x,y}', 'here', '1 hour'))), 'quarantined', "$what: nor any");
	is(verdict($dbh, $begin, 'new'), 'quarantined', "$what: nothing is begun");
	is(verdict($dbh, q(SELECT * FROM effect.claim_effect('pay', 'new'))), 'quarantined', "$what: nor claimed");
	is_deeply($dbh->selectcol_arrayref(q(SELECT DISTINCT verdict FROM effect.begin_effects('pay', '{b1,b2,b3}'))), ['quarantined'], "$what: nor in a batch");
	is(verdict($dbh, $submit), 'quarantined', "$what: what was claimed is not submitted");
	is(verdict($dbh, $begin, 'reserved'), 'quarantined', "$what: nor begun again");
	is(verdict($dbh, $begin, 'unknown'), 'quarantined', "$what: what is unknown is not asked about");
	is(verdict($dbh, $begin, 'done'), 'done', "$what: what is done is done");
	is(verdict($dbh, q(SELECT * FROM effect.explain_effect('pay', 'new'))), 'quarantined', "$what: explain says what claim would");
	$dbh->begin_work;
	is(verdict($dbh, $begin, 'new'), 'quarantined', "$what: nor in a transaction");
	$dbh->rollback;
	is(sqlstate_of($dbh, 'SELECT effect.bump_epochs()'), 'LE011', "$what: bump_epochs wants adopt_cluster first");
	is(value($dbh, q(SELECT count(*) FROM effect.effects WHERE target IN ('new', 'b1', 'b2', 'b3'))), 0, "$what: and left no trace");
	is(quarantined($dbh), 1, "$what: the place is marked");
	isnt(value($dbh, 'SELECT quarantine_reason FROM effect.cluster'), '', "$what: with a reason");
	return;
}

# In a copy, what was in flight at the original is unknown here.
sub check_in_flight
{
	my ($dbh, $what) = @_;
	my $states = states($dbh);
	is($states->{"in flight$_"}, 'unknown', "$what: in flight$_: unknown here") for '', ', job';
	is($states->{"reserved$_"}, 'claimed', "$what: reserved$_: as it was") for '', ', job';
	is(value($dbh, q(SELECT string_agg(DISTINCT status, ' ') FROM effect.leases)), 'free', "$what: every lease is free");
	is(value($dbh, q(SELECT effect.renew_lease('nightly', 1))), undef, "$what: its holder is fenced");
	return;
}

# What goes on, then the end of it.
sub check_goes_on
{
	my ($dbh, $what) = @_;
	my $unknown = grep { $_ eq 'unknown' } values %{ states($dbh) };
	cmp_ok($unknown, '>=', 4, "$what: what is unknown reads so");
	$dbh->do('SELECT effect.sweep()');
	is(value($dbh, q(SELECT count(*) FROM effect.unknown)), $unknown, "$what: and sweep writes it down");
	isnt(value($dbh, q(SELECT target FROM effect.next_unknown('here'))), undef, "$what: pollers are served");
	is(value($dbh, 'SELECT effect.resolve_unknown(' . key_of('pay', 'in flight') . q{, 'happened', 1, NULL, '"seen"')}), 'done', "$what: resolving goes on");
	is(value($dbh, 'SELECT effect.resolve_unknown(' . key_of('pay', 'unknown') . q{, 'did_not_happen', 1)}), 'claimed', "$what: either way");
	is(verdict($dbh, 'SELECT * FROM effect.complete_effect(' . key_of('pay', 'unknown too') . q{, 1, '"late"')}), 'done', "$what: an answer is taken");
	is(verdict($dbh, $begin, 'unknown'), 'quarantined', "$what: but what did not happen is not sent from here");
	is(value($dbh, q(SELECT effect.once('seen', 'evt_1'))) || 0, 0, "$what: an inside effect that was done is done");
	is(value($dbh, q(SELECT effect.once('seen', ?)), "evt $what"), 1, "$what: a new one is done here");
	is(verdict($dbh, q(SELECT * FROM effect.apply_effect('post', ?)), "entry $what"), 'apply', "$what: or applied");
	return;
}

sub check_adopted
{
	my ($dbh, $what, $above) = @_;
	my $old   = session_like($dbh);
	my $epoch = value($dbh, 'SELECT effect.adopt_cluster()');
	cmp_ok($epoch, '>', 0, "$what: adopted, epoch $epoch");
	is(quarantined($dbh), 0, "$what: the mark is gone");
	my $r = row($dbh, q(SELECT * FROM effect.claim_lease('nightly', 'here', '1 hour')));
	is($r->{verdict}, 'granted', "$what: leases are granted");
	cmp_ok($r->{fencing_token}, '>', $above, "$what: token $r->{fencing_token} is above $above");
	is(verdict($old, $begin, 'new'), 'go', "$what: another session is told go");
	is(verdict($dbh, $begin, 'unknown'), 'go', "$what: what did not happen may be sent");
	is(verdict($dbh, $begin, 'in flight, job'), 'unknown', "$what: what was in flight is resolved first");
	return;
}

# Another session of the same place, which has looked before.
my %where;
sub place { my ($dbh, $node, $db) = @_; $where{"$dbh"} = [ $node, $db ]; return $dbh }
sub session_like
{
	my ($n, $db) = @{ $where{"$_[0]"} };
	my $dbh = session($n, db => $db);
	is(verdict($dbh, $begin, 'new'), 'quarantined', 'another session, before');
	return $dbh;
}

my $token = value($from, q(SELECT max(fencing_token) FROM effect.leases));

# A physical copy first, while everything is as above.
$node->backup('base');

# ---------------------------------------------------------------------------
# A dump restored into another database, a template copy.
# ---------------------------------------------------------------------------

$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", 'shop' ], 'dump: made');
$node->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'restored', "$dir/dump" ], 'dump: restored');
$from->disconnect;
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE shop');
$from = session($node, db => 'shop');

for my $copy ([ 'restored', $claim ], [ 'copy', $submit ])
{
	my ($db, $first) = @$copy;
	my $dbh = place(session($node, db => $db), $node, $db);
	check_quarantined($dbh, $db, $first);
	check_in_flight($dbh, $db);
	check_goes_on($dbh, $db);
	check_adopted($dbh, $db, $token);
	$dbh->disconnect;
}

# The original has noticed nothing of all this.
is(value($from, q(SELECT effect.renew_lease('nightly', 1)) . ' IS NOT NULL'), 1, 'original: its holder goes on');
is(verdict($from, $begin, 'at the original'), 'go', 'original: and sends');
is(value($from, 'SELECT epoch FROM effect.cluster'), 0, 'original: its epoch is 0');

# ---------------------------------------------------------------------------
# Promotion, under both settings.
# ---------------------------------------------------------------------------

my %standby;
for my $setting (qw(trust quarantine))
{
	$standby{$setting} = PostgreSQL::Test::Cluster->new("standby_$setting");
	$standby{$setting}->init_from_backup($node, 'base', has_streaming => 1);
	$standby{$setting}->append_conf('postgresql.conf', "effect.after_failover = $setting\n");
	$standby{$setting}->start;
	$node->wait_for_catchup($standby{$setting}, 'replay', $node->lsn('insert'));
}
is(value(session($standby{quarantine}, db => 'shop'), 'SHOW effect.after_failover'), 'quarantine', 'standby: configured');
is(quarantined(session($standby{quarantine}, db => 'shop')), 0, 'standby: a standby is no move');
$_->promote for values %standby;

{
	my $dbh = session($standby{trust}, db => 'shop');
	is(verdict($dbh, $begin, 'new'), 'go', 'trust: a promotion goes on');
	is(value($dbh, q(SELECT effect.renew_lease('nightly', 1))), undef, 'trust: under a new epoch');
	is(quarantined($dbh), 0, 'trust: no quarantine');
	is(states($dbh)->{'in flight, job'}, 'unknown', 'trust: what was in flight is unknown');
}
{
	my $dbh = place(session($standby{quarantine}, db => 'shop'), $standby{quarantine}, 'shop');
	check_quarantined($dbh, 'promoted', $submit);
	check_in_flight($dbh, 'promoted');

	# It outlives a crash, and a crash is no move.
	my $epoch = value($dbh, 'SELECT epoch FROM effect.cluster');
	$standby{quarantine}->stop('immediate');
	let_go();
	$standby{quarantine}->start;
	$dbh = place(session($standby{quarantine}, db => 'shop'), $standby{quarantine}, 'shop');
	is(verdict($dbh, $begin, 'new'), 'quarantined', 'promoted: still after a crash');
	is(value($dbh, 'SELECT epoch FROM effect.cluster'), $epoch, 'promoted: and the epoch is what it was');
	check_goes_on($dbh, 'promoted');
	check_adopted($dbh, 'promoted', $token);
}
$_->stop for values %standby;
let_go();

# ---------------------------------------------------------------------------
# A physical copy without a new timeline: only its configuration can tell.
# ---------------------------------------------------------------------------

my %clone;
for my $site ('', 'staging')
{
	$clone{$site} = PostgreSQL::Test::Cluster->new('clone' . $site);
	$clone{$site}->init_from_backup($node, 'base');
	$clone{$site}->append_conf('postgresql.conf', "effect.site = '$site'\n");
	$clone{$site}->start;
}
{
	my $dbh = place(session($clone{staging}, db => 'shop'), $clone{staging}, 'shop');
	check_quarantined($dbh, 'site', q(SELECT * FROM effect.begin_effect('pay', 'new')));
	check_in_flight($dbh, 'site');
	check_goes_on($dbh, 'site');
	check_adopted($dbh, 'site', $token);
	is(value($dbh, 'SELECT site FROM effect.cluster'), 'staging', 'site: adopted under its own name');
	$clone{staging}->restart;
	$dbh = session($clone{staging}, db => 'shop');
	is(verdict($dbh, $begin, 'after a restart'), 'go', 'site: the same site after a restart');
}
{
	# Nobody has said that it is a clone: the documented limit, and the ways out of it.
	my $dbh = place(session($clone{''}, db => 'shop'), $clone{''}, 'shop');
	is(verdict($dbh, $begin, 'nobody said so'), 'go', 'clone: not told apart');
	my $pooled = session($clone{''}, db => 'shop');
	is(verdict($pooled, $begin, 'nor in a pool'), 'go', 'clone: nor in another session');

	# The configuration says so while sessions are connected.
	$dbh->do(q(ALTER SYSTEM SET effect.site = 'laptop'));
	$dbh->do('SELECT pg_reload_conf()');
	wait_until('the reload', sub { value($pooled, 'SHOW effect.site') eq 'laptop' && value($dbh, 'SHOW effect.site') eq 'laptop' });
	is(verdict(session($clone{''}, db => 'shop'), $begin, 'new session'), 'quarantined', 'clone: a new session is told');
	is(verdict($pooled, $begin, 'old session'), 'quarantined', 'clone: and one that had looked before');
	is(verdict($dbh, $begin, 'old session'), 'quarantined', 'clone: each of them');
	is(value($dbh, 'SELECT effect.adopt_cluster() > 0'), 1, 'clone: adopted');
	is(verdict($pooled, $begin, 'old session'), 'go', 'clone: goes on');

	# By hand, and then a second time.
	$dbh->do(q(SELECT effect.quarantine('a clone, said the script')));
	is(value($dbh, 'SELECT quarantine_reason FROM effect.cluster'), 'a clone, said the script', 'by hand: the reason is kept');
	is(value($dbh, q(SELECT detail FROM effect.journal WHERE event = 'quarantined' ORDER BY id DESC LIMIT 1)), 'a clone, said the script', 'by hand: and journalled');
	is(verdict($pooled, $begin, 'next'), 'quarantined', 'by hand: a session that had looked is told at its next call');
	is(verdict($pooled, 'SELECT * FROM effect.complete_effect(' . key_of('pay', 'old session') . ', 1)'), 'done', 'by hand: what it had sent it completes');
	is(verdict($pooled, $claim), 'quarantined', 'by hand: no lease');
	$clone{''}->stop('immediate');
	let_go();
	$clone{''}->start;
	$dbh = session($clone{''}, db => 'shop');
	is(verdict($dbh, $begin, 'next'), 'quarantined', 'by hand: committed is flushed, also across a crash');
	is(value($dbh, 'SELECT effect.adopt_cluster() > 0'), 1, 'by hand: adopted');
	is(verdict($dbh, $begin, 'next'), 'go', 'by hand: over');
}

# A clone script presses the button before anybody else can: as the first call of all.
{
	my $copy = PostgreSQL::Test::Cluster->new('scripted');
	$copy->init_from_backup($node, 'base');
	$copy->start;
	$copy->safe_psql('shop', q(SELECT effect.quarantine('cloned for tests')));
	my $dbh = session($copy, db => 'shop');
	check_quarantined(place($dbh, $copy, 'shop'), 'script', $submit);
	$copy->stop;
}

# Policy is for superusers to set.
$node->safe_psql('shop', q(CREATE ROLE worker LOGIN; SELECT effect.grant_worker('worker')));
{
	my $dbh = session($node, db => 'shop', user => 'worker');
	is(verdict($dbh, q(SELECT * FROM effect.explain_effect('pay', 'x'))), 'reserved', 'the library is loaded');
	is(sqlstate_of($dbh, "SET effect.$_ = 'trust'"), '42501', "a worker cannot set effect.$_") for qw(site after_failover);
	is(sqlstate_of($dbh, q(SELECT effect.quarantine('x'))), '42501', 'nor press the button');
	is(sqlstate_of($dbh, 'SELECT effect.adopt_cluster()'), '42501', 'nor adopt');
}

$_->stop for values %clone;
$node->stop;
done_testing();
