# The documentation answers as it says (DESIGN 9; the issue's "runnable in doc/recipes.md").
#
# Every ```sql block of every page is run, statement by statement, and compared
# with what stands below it:
#
#   --> a | b          the next row of the answer; … stands for anything
#   -- error XXXXX     on the statement's last line: it fails so
#   -- session N       what follows runs on connection N
#   \gset, \echo       as in psql: \gset sets :name and :'name' from the row
#
# A statement with answers has as many rows as answers, and one without an error
# line must not fail.  A page is one database; of recipes.md each section is one,
# since a recipe must work for somebody who reads nothing else, and each of them
# is also given to psql itself.
#
# PAGES="doc/recipes.md ..." runs these only; SHOW=1 prints what was answered.

use strict;
use warnings;
use utf8;

use Encode qw(decode_utf8 encode_utf8);
use File::Basename;
use IPC::Run;
use Test::More;
use EffectTest;

my $root = dirname(__FILE__) . '/../..';
my @pages = $ENV{PAGES} ? split(' ', $ENV{PAGES}) : sort glob("$root/doc/*.md");
my $node = new_node('recipes', conf => "fsync = off\nwal_level = replica\nmax_wal_senders = 2\n", bare => 1);
my $boss = session($node);
my $quoted = qr/'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\g{-1}\$/s;

# The items of a block, in order: [sql|gset|echo|answer|error|session, text, prefix].
sub items_of
{
	my ($block) = @_;
	my (@items, $sql);
	pos($block) = 0;
	$sql = '';
	while (pos($block) < length $block)
	{
		if ($block =~ /\G($quoted)/gc) { $sql .= $1 }
		elsif ($block =~ /\G--([^\n]*)/gc)
		{
			my $said = $1;
			next if $sql =~ /\S/;
			if    ($said =~ /^> ?(.*?)\s*$/)       { push @items, [ answer => $1 ] }
			elsif ($said =~ /^ error (\w{5})/)     { push @items, [ error => $1 ] }
			elsif ($said =~ /^ session (\w+)/)     { push @items, [ session => $1 ] }
		}
		elsif ($block =~ /\G\\gset\b(?:[ \t]+(\w+))?/gc) { push @items, [ gset => $sql, $1 || '' ]; $sql = '' }
		elsif ($block =~ /\G\\echo[ \t]+([^\n]*)/gc)   { push @items, [ echo => $1 ] }
		elsif ($block =~ /\G;/gc)        { push @items, [ sql => $sql ]; $sql = '' }
		elsif ($block =~ /\G(.)/gcs)     { $sql .= $1 }
	}
	die "a statement does not end: $sql\n" if $sql =~ /\S/;
	return @items;
}

# :name and :'name', outside of what is quoted.
sub with_variables
{
	my ($sql, $var) = @_;
	$sql =~ s{($quoted)|(?<!:):'(\w+)'|(?<![:\w]):(\w+)}{
		my ($kept, $literal, $bare) = ($1, $3, $4);
		defined $kept ? $kept
		  : defined $literal ? (exists $var->{$literal} ? "'$var->{$literal}'" : ":'$literal'")
		  : exists $var->{$bare} ? $var->{$bare} : ":$bare" }gesx;
	return $sql;
}

sub in_one_line { my ($text) = @_; $text =~ s/\s+/ /g; $text =~ s/^ | $//g; return $text }

sub as_written
{
	my ($text) = @_;
	$text =~ s/\s*\|\s*/|/g;
	$text =~ s/^\s+|\s+$//g;
	return $text;
}

sub is_as_said
{
	my ($said, $row) = @_;
	my $pattern = join '.*', map { quotemeta } split(/…/, as_written($said), -1);
	return as_written($row) =~ /^$pattern$/s;
}

# One statement: its rows as text, or its error.
sub run_statement
{
	my ($dbh, $kind, $sql, $prefix, $var) = @_;
	my %done = (sql => in_one_line($sql), rows => [], error => '');
	return { %done, rows => [ with_variables($sql, $var) ] } if $kind eq 'echo';
	my $ok = eval {
		my $sth = $dbh->prepare(with_variables($sql, $var), { pg_direct => 1 });
		$sth->execute;
		if ($sth->{NUM_OF_FIELDS})
		{
			my @names = map { ($prefix || '') . $_ } @{ $sth->{NAME} };
			while (my $row = $sth->fetchrow_arrayref)
			{
				my @row = map { defined $_ ? $_ : '' } @$row;
				@$var{@names} = @row if $kind eq 'gset';
				push @{ $done{rows} }, join(' | ', @row);
			}
			$done{error} = 'no row for \gset' if $kind eq 'gset' && !@{ $done{rows} };
		}
		1;
	};
	($done{error}, $done{message}) = ($dbh->state || '?????', in_one_line($dbh->errstr || $@)) unless $ok;
	if ($ENV{SHOW})
	{
		note(encode_utf8($done{sql}));
		note(encode_utf8("    $_")) for @{ $done{rows} }, $done{error} ? "$done{error} $done{message}" : ();
	}
	return \%done;
}

# What is wrong with a statement, now that all that was said about it is known.
sub complaints
{
	my ($done, $said, $error) = @_;
	return () unless $done;
	return ("wanted error $error, got '$done->{error}': $done->{sql}") if $error && $done->{error} ne $error;
	return ("$done->{error} " . ($done->{message} || '') . ": $done->{sql}") if $done->{error} && !$error;
	return () unless @$said;
	return (scalar(@$said) . ' rows wanted, got ' . @{ $done->{rows} } . " [@{ $done->{rows} }]: $done->{sql}")
	  if @$said != @{ $done->{rows} };
	return map { is_as_said($said->[$_], $done->{rows}[$_]) ? ()
		: "wanted '$said->[$_]', got '$done->{rows}[$_]': $done->{sql}" } 0 .. $#$said;
}

# A database with connections by number.
sub open_place
{
	my ($name) = @_;
	$boss->do("CREATE DATABASE $name");
	my %place = (name => $name, var => {}, open => {});
	$place{connect} = sub {
		my $dbh = session($node, db => $name, utf8 => 1, options => '--statement_timeout=20s');
		@$dbh{qw(pg_bool_tf pg_expand_array)} = (1, 0);
		return $place{open}{ $_[0] } ||= $dbh;
	};
	$place{now} = $place{connect}->(1);
	$place{now}->do('CREATE EXTENSION effect');
	return \%place;
}

sub close_place
{
	my ($place) = @_;
	$_->disconnect for values %{ $place->{open} };
	$boss->do("DROP DATABASE $place->{name} WITH (FORCE)");
	drop_roles();
}

sub drop_roles
{
	$boss->do("DROP ROLE $_")
	  for map { @$_ } @{ $boss->selectall_arrayref(q(SELECT quote_ident(rolname) FROM pg_roles WHERE rolname LIKE 'doc\_%')) };
}

my %count = (statements => 0, answers => 0, errors => 0);

sub run_block
{
	my ($place, $block) = @_;
	my (@wrong, $done, @said, $error);
	my $settle = sub { push @wrong, complaints($done, \@said, $error); ($done, $error) = (); @said = () };
	for my $item (items_of($block))
	{
		my ($kind, $text) = @$item;
		if    ($kind eq 'answer') { push @said, $text; $count{answers}++ }
		elsif ($kind eq 'error')  { $error = $text; $count{errors}++ }
		else
		{
			$settle->();
			$place->{now} = $place->{open}{$text} || $place->{connect}->($text) if $kind eq 'session';
			next if $kind eq 'session';
			$done = run_statement($place->{now}, @$item[0 .. 2], $place->{var});
			$count{statements}++;
		}
	}
	$settle->();
	return @wrong;
}

# The blocks of a page: [line, text].
sub blocks_of
{
	my ($text, $from) = @_;
	my @blocks;
	while ($text =~ /^```sql\n(.*?)^```/gms)
	{
		my ($block, $at) = ($1, $-[0]);
		push @blocks, [ $from + (substr($text, 0, $at) =~ tr/\n//), $block ];
	}
	return @blocks;
}

# psql itself, over the same blocks: the errors it met, by SQLSTATE, in order.
sub run_psql
{
	my ($name, @blocks) = @_;
	my $input = encode_utf8(join "\n", map { $_->[1] } @blocks);
	my ($out, $err) = ('', '');
	$boss->do("CREATE DATABASE $name");
	session($node, db => $name)->do('CREATE EXTENSION effect');
	local $ENV{PGOPTIONS} = '--statement_timeout=20s';
	IPC::Run::run([ 'psql', '-Xq', '-v', 'VERBOSITY=sqlstate', '-d', $node->connstr($name) ], '<', \$input, '>', \$out, '2>', \$err);
	$boss->do("DROP DATABASE $name WITH (FORCE)");
	drop_roles();
	my @other = grep { /\S/ && !/^(?:psql:\S+ )?(?:ERROR|WARNING|NOTICE)/ } split /\n/, $err;
	return join(' ', $err =~ /ERROR:\s+(\w{5})$/mg, @other);
}

sub read_page
{
	my ($file) = @_;
	open(my $fh, '<', $file) or die "$file: $!";
	local $/;
	my $text = decode_utf8(<$fh>);
	close $fh;
	return $text;
}

for my $file (@pages)
{
	my $page = basename($file, '.md');
	my $text = read_page($file);
	my $line = 1;
	my @parts = $page eq 'recipes' ? split(/^(?=## )/m, $text) : ($text);
	for my $n (0 .. $#parts)
	{
		my ($title) = $parts[$n] =~ /^#+ (.*)/;
		my @blocks = blocks_of($parts[$n], $line);
		$line += $parts[$n] =~ tr/\n//;
		next unless @blocks;
		my $name = @parts > 1 ? "page_${page}_$n" : "page_$page";
		my $place = open_place($name);
		for my $block (@blocks)
		{
			my @wrong = eval { run_block($place, $block->[1]) };
			push @wrong, $@ if $@;
			ok(!@wrong, encode_utf8("$page.md line $block->[0]" . ($title ? ": $title" : '')))
			  or diag(encode_utf8(join "\n", @wrong));
		}
		close_place($place);
		next unless $page eq 'recipes';
		next if grep { $_->[1] =~ /^-- session/m } @blocks;
		my $errors = join ' ', map { $_->[1] =~ /-- error (\w{5})/g } @blocks;
		is(run_psql("psql_$n", @blocks), $errors, encode_utf8("$page.md, psql itself: $title"));
	}
}

# doc/stats.md has each view, each column, each advice and each counter, and no other.
sub is_documented
{
	my ($there, $written, $what) = @_;
	my (%there, %written);
	@there{@$there} = ();
	@written{@$written} = ();
	is(join(' ', grep { !exists $written{$_} } sort keys %there), '', "doc/stats.md: $what, none is missing");
	is(join(' ', grep { !exists $there{$_} } sort keys %written), '', "doc/stats.md: $what, none is made up");
}

# What stands between backticks in the first cells of the first table in a text.
sub first_cells
{
	my ($text) = @_;
	my ($table) = $text =~ /^(\|.*?)(?:\n\n|\z)/ms;
	return map { /`([^`]+)`/g } map { /^\| (.*?) \|/ } split /\n/, $table;
}

sub check_stats
{
	my $text = read_page("$root/doc/stats.md");
	my $place = open_place('page_stats_columns');
	my %columns;
	push @{ $columns{ $_->[0] } }, $_->[1]
	  for @{ $place->{now}->selectall_arrayref(q(
		SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		 WHERE c.relnamespace = 'effect'::regnamespace AND c.relkind = 'v' AND a.attnum > 0
		   AND c.relname NOT IN ('counter_totals', 'job_numbers', 'action_numbers')
		UNION ALL SELECT 'metrics()', unnest(p.proargnames) FROM pg_proc p WHERE p.oid = 'effect.metrics'::regproc)) };
	delete $columns{metric_values};	# what metrics() returns
	my %sections = $text =~ /^### effect\.(\S+)\n(.*?)(?=^##|\z)/gms;
	is_documented([ keys %columns ], [ keys %sections ], 'views');
	is_documented($columns{$_}, [ first_cells($sections{$_}) ], "columns of $_") for sort grep { $columns{$_} } keys %sections;
	my ($view) = read_page("$root/sql/77-stats.sql") =~ /^CREATE VIEW effect\.advice AS(.*?)^COMMENT/ms;
	my ($codes) = $sections{advice} =~ /(^\| code \|.*)/ms;
	is_documented([ $view =~ /'(?:critical|warning|advice)', (?:(?:'action'|l\.kind), [^,]+, )?'(\w+)'/g ],
		[ first_cells($codes) ], 'codes of advice');
	my ($labels) = read_page("$root/src/stats.c") =~ /stats_labels\[\] = \{(.*?)\}/s;
	is_documented([ $labels =~ /"(\w+)"/g ], [ map { first_cells($_) } $text =~ /^### Of (?:jobs|actions)\n(.*?)(?=^###)/gms ], 'counters');
	close_place($place);
}

check_stats() if grep { basename($_) eq 'stats.md' } @pages;

cmp_ok($count{statements}, '>', 0, "$count{statements} statements, $count{answers} answers and $count{errors} errors compared");
$boss->disconnect;
$node->stop;
done_testing();
