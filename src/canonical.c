/*
 * canonical.c
 *	  The canonical text of a jsonb document: RFC 8785, exact numbers.
 *
 * Every key is a hash of what this file writes, so its bytes are a promise:
 * test/vectors/ holds them, and a change here rotates every key in the field.
 *
 * jsonb has already taken whitespace, duplicate members and escapes away, but
 * it keeps members by length and then by byte, and keeps the trailing zeros
 * of a number.  What is left to do is RFC 8785, 3.2: members sorted by UTF-16
 * code unit, arrays as they are, the few escapes JSON requires, numbers laid
 * out as ECMAScript's Number::toString lays them out.  One deviation, on
 * purpose: a number keeps its own digits and never passes through a double,
 * so that 9007199254740992 and 9007199254740993 stay two numbers.  There is
 * no Unicode normalisation, as the RFC demands.
 *
 * Nothing here outlives a call.  The document is read in place; the arrays of
 * members live in the caller's memory context and are freed object by object.
 * The output is UTF-8 in every database: in one with another encoding each
 * string is converted first, since both the order and the hash are over UTF-8.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "effect.h"

/*
 * Deeper than any request body, and shallow enough for the smallest
 * max_stack_depth: the limit is the same on every server.
 */
#define CANONICAL_MAX_DEPTH 1000

/* A member of an object; name is UTF-8, and ours to free when it was converted. */
typedef struct CanonicalMember
{
	const char *name;
	int			len;
	bool		converted;
	JsonbValue	value;
} CanonicalMember;

static void canonical_container(StringInfo out, JsonbContainer *container, int depth);

PG_FUNCTION_INFO_V1(effect_canonical_json);

/*
 * A string of the database in UTF-8: the same pointer where it already is.
 *
 * SQL_ASCII says nothing about its bytes, so they are taken for UTF-8 and
 * refused (22021) when they are not.
 */
static const char *
canonical_utf8(const char *string, int *len)
{
	const char *utf8 = pg_server_to_any(string, *len, PG_UTF8);

	if (utf8 != string)
		*len = (int) strlen(utf8);
	return utf8;
}

/*
 * A string value as RFC 8785, 3.2.2.2 writes it; the bytes are UTF-8 already.
 *
 * Runs of ordinary bytes are copied whole: most strings are one run.
 */
static void
canonical_quote(StringInfo out, const char *utf8, int len)
{
	static const char named[] = "btn\0fr";	/* U+0008 .. U+000D; U+000B has no name */
	int			run = 0;

	appendStringInfoChar(out, '"');
	for (int i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) utf8[i];

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		appendBinaryStringInfo(out, utf8 + run, i - run);
		run = i + 1;
		if (c >= 0x20)
			appendStringInfo(out, "\\%c", c);
		else if (c >= '\b' && c <= '\r' && named[c - '\b'] != '\0')
			appendStringInfo(out, "\\%c", named[c - '\b']);
		else
			appendStringInfo(out, "\\u%04x", c);
	}
	appendBinaryStringInfo(out, utf8 + run, len - run);
	appendStringInfoChar(out, '"');
}

/* A string of the document. */
static void
canonical_string(StringInfo out, const char *string, int len)
{
	const char *utf8 = canonical_utf8(string, &len);

	canonical_quote(out, utf8, len);
	if (utf8 != string)
		pfree(unconstify(char *, utf8));
}

/*
 * Lay out the number 0.d1d2..dk x 10^point: ECMAScript's Number::toString, steps
 * 6 to 10, where n is point.  d1 and dk are not 0.
 */
static void
canonical_layout(StringInfo out, const char *digits, int k, int point)
{
	if (k <= point && point <= 21)
	{
		appendBinaryStringInfo(out, digits, k);
		appendStringInfoSpaces(out, point - k);
		memset(out->data + out->len - (point - k), '0', point - k);
	}
	else if (0 < point && point <= 21)
	{
		appendBinaryStringInfo(out, digits, point);
		appendStringInfoChar(out, '.');
		appendBinaryStringInfo(out, digits + point, k - point);
	}
	else if (-6 < point && point <= 0)
	{
		appendBinaryStringInfo(out, "0.00000", 2 - point);
		appendBinaryStringInfo(out, digits, k);
	}
	else
	{
		appendStringInfoChar(out, digits[0]);
		if (k > 1)
		{
			appendStringInfoChar(out, '.');
			appendBinaryStringInfo(out, digits + 1, k - 1);
		}
		appendStringInfo(out, "e%+d", point - 1);
	}
}

/* The next 16 bits of numeric's wire form. */
static int
canonical_wire16(const char **wire)
{
	uint16		bits;

	memcpy(&bits, *wire, sizeof(bits));
	*wire += sizeof(bits);
	return (int16) pg_ntoh16(bits);
}

/*
 * A number, with its own significant digits.
 *
 * numeric's wire form (base 10000 digits and the weight of the first) is read
 * rather than its text, so that 1e400 costs five bytes and not 401.
 */
static void
canonical_number(StringInfo out, Numeric number)
{
	bytea	   *message;
	const char *wire;
	char		local[64];
	char	   *digits = local;
	int			groups,
				point,
				sign,
				k = 0,
				skip = 0;

	message = DatumGetByteaP(DirectFunctionCall1(numeric_send, NumericGetDatum(number)));
	wire = VARDATA(message);
	groups = canonical_wire16(&wire);
	point = (canonical_wire16(&wire) + 1) * 4;
	sign = canonical_wire16(&wire);
	(void) canonical_wire16(&wire); /* the display scale says nothing of the value */
	if (sign != 0 && sign != 0x4000)
		elog(ERROR, "jsonb number is not finite");

	if (groups * 4 > sizeof(local))
		digits = palloc(groups * 4);
	for (int i = 0; i < groups; i++)
	{
		int			group = canonical_wire16(&wire);

		for (int unit = 1000; unit > 0; unit /= 10)
			digits[k++] = '0' + group / unit % 10;
	}
	while (k > 0 && digits[k - 1] == '0')
		k--;
	while (skip < k && digits[skip] == '0')
		skip++;

	if (k == 0)
		appendStringInfoChar(out, '0');
	else
	{
		if (sign != 0)
			appendStringInfoChar(out, '-');
		canonical_layout(out, digits + skip, k - skip, point - skip);
	}
	if (digits != local)
		pfree(digits);
	pfree(message);
}

/* Any value; containers one level further down. */
static void
canonical_value(StringInfo out, JsonbValue *value, int depth)
{
	switch (value->type)
	{
		case jbvNull:
			appendBinaryStringInfo(out, "null", 4);
			break;
		case jbvBool:
			appendStringInfoString(out, value->val.boolean ? "true" : "false");
			break;
		case jbvNumeric:
			canonical_number(out, value->val.numeric);
			break;
		case jbvString:
			canonical_string(out, value->val.string.val, value->val.string.len);
			break;
		case jbvBinary:
			canonical_container(out, value->val.binary.data, depth + 1);
			break;
		default:
			elog(ERROR, "unexpected jsonb value type %d", (int) value->type);
	}
}

/*
 * Order of members by UTF-16 code units (RFC 8785, 3.2.3), found in UTF-8.
 *
 * UTF-8 sorts as code points do, and UTF-16 differs from that in one place:
 * characters from U+10000 on are surrogates there (D800..DFFF) and so come
 * before U+E000..U+FFFF.  In UTF-8 those two groups begin with F0..F4 and with
 * EE, EF, and no other byte is that high.
 */
static int
canonical_compare(const void *a, const void *b)
{
	const CanonicalMember *left = a;
	const CanonicalMember *right = b;
	int			common = Min(left->len, right->len);

	for (int i = 0; i < common; i++)
	{
		unsigned char l = (unsigned char) left->name[i];
		unsigned char r = (unsigned char) right->name[i];

		if (l == r)
			continue;
		if (l >= 0xEE && r >= 0xEE && (l >= 0xF0) != (r >= 0xF0))
			return (l >= 0xF0) ? -1 : 1;
		return (l < r) ? -1 : 1;
	}
	return left->len - right->len;
}

/* An object of these members, which are sorted here and whose names are freed. */
static void
canonical_members(StringInfo out, CanonicalMember *members, int count, int depth)
{
	qsort(members, count, sizeof(CanonicalMember), canonical_compare);
	appendStringInfoChar(out, '{');
	for (int i = 0; i < count; i++)
	{
		if (i > 0)
			appendStringInfoChar(out, ',');
		canonical_quote(out, members[i].name, members[i].len);
		appendStringInfoChar(out, ':');
		canonical_value(out, &members[i].value, depth);
		if (members[i].converted)
			pfree(unconstify(char *, members[i].name));
	}
	appendStringInfoChar(out, '}');
}

/* Give a member the UTF-8 form of its name. */
static void
canonical_name(CanonicalMember *member, const char *name, int len)
{
	member->len = len;
	member->name = canonical_utf8(name, &member->len);
	member->converted = (member->name != name);
}

/* An object: the iterator gives name and value in turn, nested values unread. */
static void
canonical_object(StringInfo out, JsonbContainer *container, int depth)
{
	int			size = JsonContainerSize(container);
	int			count = 0;
	CanonicalMember *members = palloc(sizeof(CanonicalMember) * Max(size, 1));
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbIteratorToken token;
	JsonbValue	value;

	(void) JsonbIteratorNext(&it, &value, true);	/* WJB_BEGIN_OBJECT */
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_END_OBJECT)
	{
		Assert(count < size);
		if (token == WJB_KEY)
			canonical_name(&members[count], value.val.string.val, value.val.string.len);
		else
			members[count++].value = value;
	}
	Assert(count == size);
	canonical_members(out, members, count, depth);
	pfree(members);
}

/* An array, in its own order; a scalar document is an array of one in disguise. */
static void
canonical_array(StringInfo out, JsonbContainer *container, int depth)
{
	bool		bare = JsonContainerIsScalar(container);
	bool		first = true;
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	value;

	if (!bare)
		appendStringInfoChar(out, '[');
	(void) JsonbIteratorNext(&it, &value, true);	/* WJB_BEGIN_ARRAY */
	while (JsonbIteratorNext(&it, &value, true) != WJB_END_ARRAY)
	{
		if (!first)
			appendStringInfoChar(out, ',');
		first = false;
		canonical_value(out, &value, depth);
	}
	if (!bare)
		appendStringInfoChar(out, ']');
}

/* An object or an array, at this depth. */
static void
canonical_container(StringInfo out, JsonbContainer *container, int depth)
{
	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (depth > CANONICAL_MAX_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("inputs are nested too deeply"),
				 errdetail("The limit is %d levels of objects and arrays.",
						   CANONICAL_MAX_DEPTH),
				 errhint("Pass the facts that decide the effect, not the whole request.")));
	if (JsonContainerIsObject(container))
		canonical_object(out, container, depth);
	else
		canonical_array(out, container, depth);
}

/*
 * Append the RFC 8785 form of a document to out, in UTF-8.
 *
 * Raises 54000 beyond CANONICAL_MAX_DEPTH, and 22021 in a SQL_ASCII database
 * for bytes that are not UTF-8.
 */
void
canonical_append(StringInfo out, Jsonb *document)
{
	canonical_container(out, &document->root, 1);
}

/* One field's name, checked, and its member looked up. */
static void
canonical_find(CanonicalMember *member, Jsonb *inputs, Datum field, bool isnull)
{
	text	   *name;

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("fields must not contain NULL"),
				 errhint("Name the members of inputs that decide the effect.")));
	name = DatumGetTextPP(field);
	if (getKeyJsonValueFromContainer(&inputs->root, VARDATA_ANY(name),
									 VARSIZE_ANY_EXHDR(name), &member->value) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SQL_JSON_MEMBER_NOT_FOUND),
				 errmsg("inputs have no member \"%s\"", text_to_cstring(name)),
				 errdetail("A field that is named but missing would be left out of the key in silence."),
				 errhint("Correct the name, or pass the member with a JSON null.")));
	canonical_name(member, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
}

/*
 * Append the RFC 8785 form of these top-level members of an object.
 *
 * fields is a text[]; a name given twice counts once, and dimensions do not
 * matter.  Raises 2203C when inputs is not an object, 2203A for a member that
 * is missing, 22004 for a NULL among the fields, 22023 when there are none.
 */
void
canonical_append_fields(StringInfo out, Jsonb *inputs, ArrayType *fields)
{
	Datum	   *names;
	bool	   *nulls;
	int			given,
				count = 0;
	CanonicalMember *members;

	if (!JB_ROOT_IS_OBJECT(inputs))
		ereport(ERROR,
				(errcode(ERRCODE_SQL_JSON_OBJECT_NOT_FOUND),
				 errmsg("inputs must be a JSON object when fields are named"),
				 errhint("Only an object has members: pass {\"name\": value, ...}.")));
	deconstruct_array(fields, TEXTOID, -1, false, TYPALIGN_INT, &names, &nulls, &given);
	if (given == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fields must name at least one member"),
				 errhint("Without fields, input_digest(inputs) covers the whole document.")));

	members = palloc(sizeof(CanonicalMember) * given);
	for (int i = 0; i < given; i++)
		canonical_find(&members[i], inputs, names[i], nulls[i]);
	qsort(members, given, sizeof(CanonicalMember), canonical_compare);
	for (int i = 0; i < given; i++)
	{
		if (count == 0 || canonical_compare(&members[count - 1], &members[i]) != 0)
			members[count++] = members[i];
	}
	canonical_members(out, members, count, 1);
	pfree(members);
}

/*
 * effect.canonical_json(inputs jsonb) returns text
 *
 * The canonical text in the database's encoding; digests are over its UTF-8
 * form.  NULL raises 22004.
 */
Datum
effect_canonical_json(PG_FUNCTION_ARGS)
{
	StringInfoData out;
	char	   *result;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("inputs must not be NULL"),
				 errhint("For an effect without facts pass '{}'.")));
	initStringInfo(&out);
	canonical_append(&out, PG_GETARG_JSONB_P(0));
	if (GetDatabaseEncoding() == PG_UTF8)
		PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
	result = pg_any_to_server(out.data, out.len, PG_UTF8);
	PG_RETURN_TEXT_P(cstring_to_text(result));
}
