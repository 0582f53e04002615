/*
 * key.c
 *	  Effect keys: the digest of the inputs, and the key itself.
 *
 * A key names an effect, not an attempt: whoever computes it again, in any
 * session, any language, any year, must come to the same 128 bits.  doc/key.md
 * gives the formula; test/vectors/ holds bytes that never change.
 *
 * None of the functions is STRICT: a NULL key would be a dedupe switched off,
 * so NULL and blank parts are errors.
 *
 * Nothing outlives a call; what is palloc'd goes with the caller's context.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "effect.h"

#define SHA256_BYTES	32

PG_FUNCTION_INFO_V1(effect_input_digest);
PG_FUNCTION_INFO_V1(effect_input_digest_fields);
PG_FUNCTION_INFO_V1(effect_effect_key);

/*
 * Digests and keys
 */

/* A buffer that begins with room for a varlena header, for key_sha256(). */
static void
key_start(StringInfo message)
{
	initStringInfo(message);
	appendStringInfoSpaces(message, VARHDRSZ);
}

/* sha256 of what follows the header in message, which is freed. */
static void
key_sha256(StringInfo message, unsigned char hash[SHA256_BYTES])
{
	bytea	   *result;

	SET_VARSIZE(message->data, message->len);
	result = DatumGetByteaPP(DirectFunctionCall1(sha256_bytea, PointerGetDatum(message->data)));
	Assert(VARSIZE_ANY_EXHDR(result) == SHA256_BYTES);
	memcpy(hash, VARDATA_ANY(result), SHA256_BYTES);
	pfree(result);
	pfree(message->data);
}

/* sha256 of a message as 64 lower-case hex digits and a NUL. */
static void
key_hex(StringInfo message, char hex[65])
{
	unsigned char hash[SHA256_BYTES];

	key_sha256(message, hash);
	hex_encode((const char *) hash, SHA256_BYTES, hex);
	hex[64] = '\0';
}

/* The digest of a document without members, which most effects have: made once. */
void
key_digest_none(char hex[65])
{
	static char none[65];
	StringInfoData message;

	if (none[0] == '\0')
	{
		key_start(&message);
		appendStringInfoString(&message, "{}");
		key_hex(&message, none);
	}
	memcpy(hex, none, sizeof(none));
}

/*
 * The digest of a whole document: sha256 of its canonical UTF-8 bytes.
 *
 * hex receives 64 lower-case hex digits and a NUL.  Errors are those of
 * canonical_append().
 */
void
key_digest(Jsonb *inputs, char hex[65])
{
	StringInfoData message;

	if (JB_ROOT_IS_OBJECT(inputs) && JB_ROOT_COUNT(inputs) == 0)
	{
		key_digest_none(hex);
		return;
	}
	key_start(&message);
	canonical_append(&message, inputs);
	key_hex(&message, hex);
}

/* The same over the named top-level members only. */
void
key_digest_fields(Jsonb *inputs, ArrayType *fields, char hex[65])
{
	StringInfoData message;

	key_start(&message);
	canonical_append_fields(&message, inputs, fields);
	key_hex(&message, hex);
}

/*
 * One part of a key, in UTF-8: \ becomes \\ and | becomes \|, so that no part
 * can shift the boundary to the next.
 */
static void
key_part(StringInfo message, const char *part, int len)
{
	const char *utf8 = pg_server_to_any(part, len, PG_UTF8);

	if (utf8 != part)
		len = (int) strlen(utf8);
	for (int i = 0; i < len; i++)
	{
		if (utf8[i] == '\\' || utf8[i] == '|')
			appendStringInfoChar(message, '\\');
		appendStringInfoChar(message, utf8[i]);
	}
	if (utf8 != part)
		pfree(unconstify(char *, utf8));
}

/*
 * The key of an effect: the first 128 bits of sha256(action|target|digest).
 *
 * Parts are in the database's encoding and not empty: the caller has checked.
 */
void
key_make(const char *action, int action_len, const char *target, int target_len,
		 const char *digest, int digest_len, pg_uuid_t *key)
{
	StringInfoData message;
	unsigned char hash[SHA256_BYTES];

	Assert(action_len > 0 && target_len > 0 && digest_len > 0);
	key_start(&message);
	key_part(&message, action, action_len);
	appendStringInfoChar(&message, '|');
	key_part(&message, target, target_len);
	appendStringInfoChar(&message, '|');
	key_part(&message, digest, digest_len);
	key_sha256(&message, hash);
	memcpy(key->data, hash, UUID_LEN);
}

/* A jsonb argument that must not be NULL. */
static Jsonb *
key_inputs(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("inputs must not be NULL"),
				 errhint("For an effect without facts pass '{}'.")));
	return PG_GETARG_JSONB_P(n);
}

/*
 * effect.input_digest(inputs jsonb) returns text
 *
 * 64 lower-case hex digits.  NULL raises 22004.
 */
Datum
effect_input_digest(PG_FUNCTION_ARGS)
{
	char		hex[65];

	key_digest(key_inputs(fcinfo, 0), hex);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(hex, 64));
}

/*
 * effect.input_digest(inputs jsonb, VARIADIC fields text[]) returns text
 *
 * The same over the named top-level members only, as if there were no others.
 * NULL raises 22004; see also canonical_append_fields().
 */
Datum
effect_input_digest_fields(PG_FUNCTION_ARGS)
{
	Jsonb	   *inputs = key_inputs(fcinfo, 0);
	char		hex[65];

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("fields must not be NULL"),
				 errhint("Without fields, input_digest(inputs) covers the whole document.")));
	key_digest_fields(inputs, PG_GETARG_ARRAYTYPE_P(1), hex);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(hex, 64));
}

/* Refuse a JSON text where a digest belongs, however long it is. */
static void
key_refuse_json(FunctionCallInfo fcinfo, int n)
{
	char	   *json;

	if (PG_ARGISNULL(n))
		return;
	json = text_to_cstring(PG_GETARG_TEXT_PP(n));
	json += strspn(json, " \t\r\n");
	if (*json == '{' || *json == '[')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("input_digest is a JSON text, not a digest"),
				 errdetail("As text, equal documents would get different keys."),
				 errhint("Pass effect.input_digest(...::jsonb).")));
}

/*
 * Refuse a sha256 in upper-case hex: the same digest spelled otherwise would
 * be another key, and so a second effect.
 */
static void
key_refuse_upper(const char *digest)
{
	if (strlen(digest) == 64 &&
		strspn(digest, "0123456789abcdefABCDEF") == 64 &&
		strpbrk(digest, "ABCDEF") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("input_digest is in upper-case hex"),
				 errdetail("The same digest in lower case would be another key."),
				 errhint("Pass lower(input_digest), as effect.input_digest() writes it.")));
}

/*
 * effect.effect_key(action text, target text, input_digest text) returns uuid
 *
 * action and input_digest up to 255 bytes, target up to 1024.  NULL raises
 * 22004; blank, too long, a JSON text or upper-case hex 22023.
 */
Datum
effect_effect_key(PG_FUNCTION_ARGS)
{
	char	   *action = arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY);
	char	   *target = arg_text(fcinfo, 1, "target", EFFECT_MAX_TARGET);
	char	   *digest;
	pg_uuid_t  *key = palloc(sizeof(pg_uuid_t));

	key_refuse_json(fcinfo, 2);
	digest = arg_text(fcinfo, 2, "input_digest", EFFECT_MAX_KEY);
	key_refuse_upper(digest);
	key_make(action, strlen(action), target, strlen(target), digest, strlen(digest), key);
	PG_RETURN_UUID_P(key);
}
