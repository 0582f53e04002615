# Keys do not depend on the server's encoding (DESIGN 4.1; case 32).
#
# The same facts in a UTF8, a LATIN1 and a SQL_ASCII database have one key: the
# digest is over UTF-8. In SQL_ASCII the server knows no characters, so the bytes
# are taken to be UTF-8, and bytes that are not are refused.

use strict;
use warnings;
use utf8;

use Encode qw(encode);
use Test::More;
use EffectTest;

my $node = new_node('encodings', conf => "fsync = off\n");
my %db = (UTF8 => 'UTF8', LATIN1 => 'LATIN1', SQL_ASCII => 'UTF8');
for my $encoding (sort keys %db)
{
	$node->safe_psql('postgres', "CREATE DATABASE " . lc("enc_$encoding") . " TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
}
my %dbh = map { $_ => session($node, db => lc("enc_$_"), utf8 => 0) } keys %db;
for my $encoding (sort keys %db)
{
	$dbh{$encoding}->do('CREATE EXTENSION effect');
	# What the client sends is UTF-8 everywhere; SQL_ASCII does not convert.
	$dbh{$encoding}->do(q(SET client_encoding = 'UTF8'));
}

my @cases = (
	[ 'mail', 'Café',             '{"to": "Café", "größe": "ß"}' ],
	[ 'mail', 'ascii',            '{"b": 2, "a": [1, 1.0, "x"]}' ],
	[ 'märz', 'señor|a\\b',       '{"é": 1, "e": 2, "z": {"ü": null}}' ],
	[ 'mail', "Cafe\x{301}",      '{"to": "x"}', 'not LATIN1' ],
	[ 'mail', '한글 😀',           '{"to": "😀", "ﬁ": "fi"}', 'not LATIN1' ],
	[ 'mail', 'order',            '{"😀": 1, "ﬁ": 2, "z": 3}', 'not LATIN1' ],
);

my $sql = 'SELECT effect.effect_key($1, $2, effect.input_digest($3::jsonb)) || effect.canonical_json($3::jsonb)';
for my $case (@cases)
{
	my ($action, $target, $inputs, $not_latin) = @$case;
	my @args = map { encode('UTF-8', $_) } $action, $target, $inputs;
	my $expected = value($dbh{UTF8}, $sql, @args);
	my $what = encode('UTF-8', "$action $target");
	ok($expected, "$what has a key in UTF8");
	is(value($dbh{SQL_ASCII}, $sql, @args), $expected, "$what: SQL_ASCII agrees");
	is(value($dbh{LATIN1}, $sql, @args), $expected, "$what: LATIN1 agrees") unless $not_latin;
}

# An escape in JSON is the character it names, where the server knows characters.
is(value($dbh{$_}, q(SELECT effect.input_digest('{"to": "Caf\u00e9"}'))),
	value($dbh{UTF8}, 'SELECT effect.input_digest($1::jsonb)', encode('UTF-8', '{"to": "Café"}')), "$_: \\u00e9 is é") for qw(UTF8 LATIN1);

# Canonical text in the server's own encoding: LATIN1 gets its own characters back.
is(value($dbh{LATIN1}, 'SELECT effect.canonical_json($1::jsonb)', encode('UTF-8', '{"b":"é","a":1}')), encode('UTF-8', '{"a":1,"b":"é"}'), 'LATIN1: canonical text comes back');
is(value($dbh{LATIN1}, 'SELECT octet_length(effect.canonical_json($1::jsonb))', encode('UTF-8', '{"a":"é"}')), 9, 'LATIN1: in its own encoding');

# Bytes that are no UTF-8: an error, not a key that no other database would agree to.
$dbh{SQL_ASCII}->do(q(SET client_encoding = 'SQL_ASCII'));
like(sqlstate_of($dbh{SQL_ASCII}, q(SELECT effect.effect_key('mail', E'Caf\xe9', effect.input_digest('{}')))), qr/^22/, 'SQL_ASCII: bytes that are no UTF-8 are refused in a target');
like(sqlstate_of($dbh{SQL_ASCII}, q(SELECT effect.input_digest(jsonb_build_object('to', E'Caf\xe9')))), qr/^22/, 'SQL_ASCII: and in the inputs');

# A ledger that moved from one encoding to another finds its rows again.
for my $encoding (sort keys %db)
{
	my $d = $dbh{$encoding};
	$d->do(q(SET client_encoding = 'UTF8'));
	my @args = map { encode('UTF-8', $_) } 'märz', 'señor', '{"é": 1}';
	is(verdict($d, 'SELECT * FROM effect.begin_effect($1, $2, $3::jsonb)', @args), 'go', "$encoding: go");
	is(verdict($d, 'SELECT * FROM effect.begin_effect($1, $2, $3::jsonb)', @args), 'busy', "$encoding: then busy");
	is(row($d, 'SELECT * FROM effect.claim_lease($1, $2, $$1 hour$$)', encode('UTF-8', 'Jäger'), 'x')->{fencing_token}, 1, "$encoding: a job with a name");
}
my %keys;
$keys{ value($_, 'SELECT effect_key FROM effect.effects') } = 1 for values %dbh;
is(scalar(keys %keys), 1, 'all three ledgers have it under one key');

$node->stop;
done_testing();
