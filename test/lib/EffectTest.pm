# What the TAP tests of effect share: clusters that are safe to crash, sessions,
# bounded waits, and a seed for everything that is random.

package EffectTest;

use strict;
use warnings;

use DBI;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scalar::Util qw(weaken);
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(new_node session row value verdict sqlstate_of key_of
  let_go background wait_until wait_event_of wait_expired seed pick jitter spawn reap note_line lines_of);

# Every wait is for a condition, and no wait is for ever.
our $PATIENCE = 60;

# Nor is a test that hangs in a statement; test/run stops the servers it leaves.
alarm($ENV{TAP_TIMEOUT} || 240);

# A cluster whose crashes are real: fsync on, and it starts again by itself after
# a backend was killed.  `conf` adds settings, `init` passes on to init().
sub new_node
{
	my ($name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(extra => [ '-E', 'UTF8', '--locale=C' ], %{ $opt{init} || {} });
	$node->append_conf('postgresql.conf', <<"CONF");
fsync = on
full_page_writes = on
restart_after_crash = on
max_connections = 60
max_prepared_transactions = 10
shared_buffers = 16MB
autovacuum_naptime = 5s
log_statement = none
log_min_messages = log
CONF
	$node->append_conf('postgresql.conf', $opt{conf}) if $opt{conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION effect') unless $opt{bare};
	return $node;
}

# Handles whose server crashed must not roll back when they go out of scope: DBD::Pg
# does not survive that.  Call let_go() after a crash, before they do.
my @open;

sub let_go { for (grep { $_ } @open) { $_->{InactiveDestroy} = 1 } @open = (); return }

# A connection of its own, autocommit, errors raised; `db` and `options` (-c …) may be given.
sub session
{
	my ($node, %opt) = @_;
	my $dsn = sprintf 'dbi:Pg:host=%s;port=%s;dbname=%s',
	  $node->host, $opt{port} || $node->port, $opt{db} || 'postgres';
	$dsn .= ";options=$opt{options}" if $opt{options};
	my $dbh = DBI->connect($dsn, $opt{user} || scalar(getpwuid($<)), '',
		{ AutoCommit => 1, RaiseError => 1, PrintError => 0, PrintWarn => 0,
		  AutoInactiveDestroy => 1, pg_server_prepare => $opt{prepare} || 0,
		  pg_enable_utf8 => defined $opt{utf8} ? $opt{utf8} : -1 });
	push @open, $dbh;
	weaken($open[-1]);
	return $dbh;
}

sub row     { my ($dbh, $sql, @args) = @_; return $dbh->selectrow_hashref($sql, undef, @args) }
sub value   { my ($dbh, $sql, @args) = @_; return ($dbh->selectrow_array($sql, undef, @args))[0] }
sub verdict { my $r = row(@_); return $r ? $r->{verdict} : undef }

# The SQLSTATE a statement fails with, '' if it does not.
sub sqlstate_of
{
	my ($dbh, $sql, @args) = @_;
	my $ok = eval { $dbh->do($sql, undef, @args); 1 };
	return $ok ? '' : $dbh->state;
}

# The key of an effect without inputs, as SQL.
sub key_of
{
	my ($action, $target) = @_;
	return "effect.effect_key('$action', '$target', effect.input_digest('{}'))";
}

sub wait_until
{
	my ($what, $condition, $patience) = @_;
	my $end = time + ($patience || $PATIENCE);
	while (time < $end)
	{
		my $answer = eval { $condition->() };
		return $answer if $answer;
		sleep 0.01;
	}
	die "waited in vain for $what";
}

# Wait until the backend sleeps in this wait event (of pg_stat_activity).
sub wait_event_of
{
	my ($dbh, $pid, $event) = @_;
	return wait_until("backend to wait for $event", sub {
		value($dbh, 'SELECT true FROM pg_stat_activity WHERE pid = ? AND wait_event = ?', $pid, $event) });
}

sub wait_expired
{
	my ($dbh, $job) = @_;
	return wait_until("the lease of $job to run out", sub {
		value($dbh, q(SELECT status = 'expired' FROM effect.leases WHERE job_key = ?), $job) });
}

# SEED=n repeats a run, as far as the scheduler of the machine lets it.
my $seed;

sub seed
{
	return $seed if defined $seed;
	$seed = length($ENV{SEED} || '') ? $ENV{SEED} : int(rand(2**31));
	srand($seed);
	diag_line("seed $seed (SEED=$seed repeats it)");
	return $seed;
}

sub diag_line { note $_[0] }
sub pick      { return $_[ int(rand(@_)) ] }
sub jitter    { my ($max) = @_; sleep(rand($max)); return }

# A child process with a random sequence of its own, and its end.
my $children = 0;

sub spawn
{
	my ($code) = @_;
	my $n   = ++$children;
	my $pid = fork;
	die "fork: $!" unless defined $pid;
	return $pid if $pid;
	srand((defined $seed ? $seed : 0) + $n);
	alarm($ENV{TAP_TIMEOUT} || 240);    # a child that outlives us would keep prove waiting
	my $ok = eval { $code->(); 1 };
	print STDERR "# child $n: $@" unless $ok;

	# Leave without END blocks: they would tear the parent's clusters down.
	require POSIX;
	POSIX::_exit($ok ? 0 : 1);
}

# Statements in a session of their own, in a child: the backend's pid, and a sub
# that waits and tells what the last one answered (its verdict or first column,
# or `failed SQLSTATE`; undef if it never answered).
sub background
{
	my ($node, @sql) = @_;
	my $file = $node->basedir . '/background' . ($children + 1);
	my $pid  = spawn(sub {
		my $dbh = session($node);
		note_line($file, $dbh->{pg_pid});
		my $answer;
		my $ok = eval { for (@sql) { my $r = row_or_done($dbh, $_); $answer = $r } 1 };
		note_line($file, $ok ? $answer : 'failed ' . ($dbh->state || '')) if $ok || $dbh->ping > 0;
	});
	my $backend = wait_until('a session in the background', sub { (lines_of($file))[0] });
	return ($backend, sub { waitpid $pid, 0; return (lines_of($file))[1] });
}

sub row_or_done
{
	my ($dbh, $sql) = @_;
	my $sth = $dbh->prepare($sql);
	$sth->execute;
	return 'done' unless $sth->{NUM_OF_FIELDS};
	my $r = $sth->fetchrow_hashref or return 'no row';
	return defined $r->{verdict} ? $r->{verdict} : $r->{ $sth->{NAME}[0] };
}

sub reap { my $bad = 0; for my $pid (@_) { waitpid $pid, 0; $bad++ if $? } return $bad }

# The far side: a file that is appended to and flushed before it answers.
sub note_line
{
	my ($file, $line) = @_;
	open(my $fh, '>>', $file) or die "$file: $!";
	syswrite($fh, "$line\n");
	$fh->sync;
	close $fh;
	return;
}

sub lines_of
{
	my ($file) = @_;
	open(my $fh, '<', $file) or return ();
	chomp(my @lines = <$fh>);
	return @lines;
}

1;
