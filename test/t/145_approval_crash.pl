# SIGKILL of the postmaster between submit and send (DESIGN promises 5 and 8, 4.6;
# issue 5).
#
# Whatever synchronous_commit says, an approval that was spent stays spent, for its
# own key: the crash never frees it for another, nor for a second act that nobody
# looked into. Killed before the commit, nothing was spent and nothing was sent.

use strict;
use warnings;

use Test::More;
use EffectTest;

seed();
my $node = new_node('approval', conf => "wal_writer_delay = 10s\nwal_writer_flush_after = 1GB\ncheckpoint_timeout = 1h\nautovacuum = off\n");
my $sent = $node->basedir . '/sent';
{
	my $dbh = session($node);
	$dbh->do(q(SELECT effect.set_action('pay', approvals_required => 1, settle => '1 millisecond')));
	$dbh->do('CREATE TABLE control (n int)');
	$dbh->do('ALTER DATABASE postgres SET synchronous_commit = off');
}

# Every process of the server is killed as it stands, and it starts again.
sub crash
{
	$node->kill9;
	let_go();
	# The last of its backends may still be there; a start that failed leaves a stale pid.
	wait_until('the server to be back', sub { delete $node->{_pid}; $node->start(fail_ok => 1) });
	return session($node);
}

sub key { return key_of('pay', $_[0]) }
sub submit { my ($dbh, $target) = @_; return verdict($dbh, "SELECT * FROM effect.submit_effect(" . key($target) . ', 1)') }
sub spent { my ($dbh, $target) = @_; return value($dbh, 'SELECT consumed_attempt FROM effect.approval WHERE effect_key = ' . key($target)) }

my $control_lost = 0;
for my $round (1 .. ($ENV{ROUNDS} || 5))
{
	my ($a, $b, $c) = map { "$_ $round" } qw(approved other open);
	my $dbh = session($node);
	is(value($dbh, 'SHOW synchronous_commit'), 'off', 'commits are asynchronous') if $round == 1;
	for my $target ($a, $b, $c)
	{
		$dbh->do('SELECT effect.claim_effect($$pay$$, ?)', undef, $target);
		$dbh->do('SELECT effect.approve(' . key($target) . ', $$boss$$)') if $target ne $b;
	}
	$dbh->do('CHECKPOINT');

	# One is told go and dies before it sends; one has its transaction open.
	my $open = session($node);
	$open->begin_work;
	is(submit($open, $c), 'go_after_commit', "round $round: one is submitted in a transaction that stays open");
	is(submit($dbh, $a), 'go', "round $round: one is told go");
	$dbh->do('INSERT INTO control VALUES (?)', undef, $round);
	$dbh = crash();
	$control_lost++ unless value($dbh, 'SELECT count(*) FROM control WHERE n = ?', $round);

	is(spent($dbh, $a), 1, "round $round: its approval is spent");
	is(value($dbh, 'SELECT state FROM effect.effects WHERE target = ?', $a), 'submitted', "round $round: and the evidence is there");
	is(sqlstate_of($dbh, 'SELECT effect.revoke_approval(' . key($a) . ', $$boss$$)'), 'LE006', "round $round: it cannot be revoked");
	is(sqlstate_of($dbh, 'SELECT effect.approve(' . key($a) . ', $$boss$$)'), 'LE006', "round $round: nor given again");
	is(sqlstate_of($dbh, 'UPDATE effect.approval SET consumed_at = NULL, consumed_attempt = NULL WHERE effect_key = ' . key($a)), 'LE012', "round $round: nor freed by plain SQL");
	is(sqlstate_of($dbh, 'UPDATE effect.approval SET effect_key = ' . key($b) . ' WHERE effect_key = ' . key($a)), 'LE012', "round $round: nor moved to another key");

	is(submit($dbh, $b), 'unapproved', "round $round: another key needs its own");
	$dbh->do('SELECT effect.approve(' . key($b) . ', $$boss$$)');
	is(submit($dbh, $b), 'go', "round $round: and is told go when it has it");

	# The one whose transaction was open was never told go, and spent nothing.
	is(spent($dbh, $c), undef, "round $round: the open one has spent nothing");
	is(value($dbh, 'SELECT state FROM effect.effects WHERE target = ?', $c), 'claimed', "round $round: and submitted nothing");
	is(submit($dbh, $c), 'go', "round $round: and is told go now");

	# The first: nobody acts until someone has looked; then its own approval serves it.
	is(verdict($dbh, 'SELECT * FROM effect.begin_effect($$pay$$, ?)', $a), 'busy', "round $round: nobody else is told go");
	is(submit($dbh, $a), 'busy', "round $round: nor its own holder, by asking again");
	$dbh->do('SELECT effect.mark_unknown(' . key($a) . ', NULL, $$the server was killed$$)');
	is(verdict($dbh, 'SELECT * FROM effect.begin_effect($$pay$$, ?)', $a), 'unknown', "round $round: somebody has to look");
	is(value($dbh, 'SELECT effect.resolve_unknown(' . key($a) . ', $$did_not_happen$$, 1)'), 'claimed', "round $round: nothing was sent");
	my $again = row($dbh, 'SELECT * FROM effect.submit_effect(' . key($a) . ', 1)');
	is($again->{verdict}, 'go', "round $round: its own approval still serves it");
	note_line($sent, $a);
	is(spent($dbh, $a), 1, "round $round: spent once");
	is(verdict($dbh, 'SELECT * FROM effect.complete_effect(' . key($a) . ', ?)', $again->{fencing_token}), 'done', "round $round: and done");
}
is(scalar(grep { /^approved/ } lines_of($sent)), $ENV{ROUNDS} || 5, 'each was sent once');
cmp_ok($control_lost, '>', 0, "the crashes were harsh: plain asynchronous commits were lost in $control_lost");

$node->stop;
done_testing();
