/*
 * facts.c
 *	  effect.facts(): typed values to the jsonb that a key is made of.
 *
 * Everything here is IMMUTABLE in earnest: no type's output function that reads
 * a setting (DateStyle, TimeZone, IntervalStyle, extra_float_digits,
 * bytea_output, lc_*) is called, and no catalog decides what a value looks
 * like.  The document is written as JSON text and read by jsonb_in(), which
 * also checks what json values bring along.
 *
 * Nothing outlives a call; what is palloc'd goes with the caller's context.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_facts);

static void facts_append(StringInfo out, Datum value, bool isnull, Oid type, const char *name);

/* A value that JSON cannot hold; what says why. */
static void
facts_refuse(const char *name, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("fact \"%s\" is %s", name, what),
			 errdetail("It has no form in JSON that every language would write the same."),
			 errhint("Pass a finite value, or NULL.")));
}

/*
 * The text of a value of a text kind, or NULL when it is not of one.
 *
 * char(n) loses its padding, as it does in a comparison and in a cast to text.
 */
static char *
facts_text(Datum value, Oid base)
{
	char	   *string;

	if (base == NAMEOID)
		return pstrdup(NameStr(*DatumGetName(value)));
	if (base != TEXTOID && base != VARCHAROID && base != BPCHAROID)
		return NULL;
	string = TextDatumGetCString(value);
	if (base == BPCHAROID)
	{
		int			len = strlen(string);

		while (len > 0 && string[len - 1] == ' ')
			string[--len] = '\0';
	}
	return string;
}

/*
 * A float in the shortest digits that read back as the same value.
 *
 * PostgreSQL's own shortest form leaves out a decimal that lies exactly half
 * way to the neighbour though it reads back (1e23 becomes 9.999999999999999e22);
 * JavaScript, Python, Go and Rust take it, so one digit less is tried here.
 */
static void
facts_float(StringInfo out, double value, bool single, const char *name)
{
	char		shortest[DOUBLE_SHORTEST_DECIMAL_LEN];
	char		shorter[64];
	int			digits = 0;
	bool		same;

	if (!isfinite(value))
		facts_refuse(name, "not a finite number");
	if (single)
		float_to_shortest_decimal_buf((float) value, shortest);
	else
		double_to_shortest_decimal_buf(value, shortest);

	for (const char *p = shortest; *p != '\0' && *p != 'e'; p++)
		digits += (*p >= '1' && *p <= '9') || (*p == '0' && digits > 0);
	snprintf(shorter, sizeof(shorter), "%.*e", Max(digits - 2, 0), value);
	same = single ? strtof(shorter, NULL) == (float) value : strtod(shorter, NULL) == value;
	appendStringInfoString(out, same ? shorter : shortest);
}

/* A numeric with its own digits; jsonb keeps them. */
static void
facts_numeric(StringInfo out, Numeric value, const char *name)
{
	if (numeric_is_nan(value) || numeric_is_inf(value))
		facts_refuse(name, "not a finite number");
	appendStringInfoString(out, DatumGetCString(DirectFunctionCall1(numeric_out,
																	NumericGetDatum(value))));
}

/*
 * Dates and times in ISO 8601 as json writes them, except that an instant is
 * always in UTC and says so with Z.  Infinity keeps PostgreSQL's words.
 */
static void
facts_datetime(StringInfo out, Datum value, Oid base)
{
	char		buffer[MAXDATELEN + 1];
	const int	utc = 0;
	char	   *zone;

	JsonEncodeDateTime(buffer, value, base, base == TIMESTAMPTZOID ? &utc : NULL);
	if (base == TIMESTAMPTZOID && (zone = strstr(buffer, "+00:00")) != NULL)
	{
		*zone = 'Z';
		memmove(zone + 1, zone + 6, strlen(zone + 6) + 1);
	}
	appendStringInfo(out, "\"%s\"", buffer);
}

/*
 * An interval in ISO 8601: months, days and time are three things and stay
 * apart, so P1D is not PT24H.
 *
 * 17 reads the two extreme values as infinity.  They are refused on every
 * version, so that none of them writes a key another cannot.
 */
static void
facts_interval(StringInfo out, const Interval *value, const char *name)
{
	struct pg_itm parts;
	char		buffer[MAXDATELEN + 1];

	if ((value->month == PG_INT32_MAX && value->day == PG_INT32_MAX && value->time == PG_INT64_MAX) ||
		(value->month == PG_INT32_MIN && value->day == PG_INT32_MIN && value->time == PG_INT64_MIN))
		facts_refuse(name, "an infinite interval");
	interval2itm(*value, &parts);
	EncodeInterval(&parts, INTSTYLE_ISO_8601, buffer);
	appendStringInfo(out, "\"%s\"", buffer);
}

/* Bytes as \x and lower-case hex, whatever bytea_output says. */
static void
facts_bytea(StringInfo out, bytea *value)
{
	int			len = VARSIZE_ANY_EXHDR(value);

	appendStringInfoString(out, "\"\\\\x");
	enlargeStringInfo(out, 2 * len);
	out->len += hex_encode(VARDATA_ANY(value), len, out->data + out->len);
	out->data[out->len] = '\0';
	appendStringInfoChar(out, '"');
}

/* The numeric kinds; false when the type is none. */
static bool
facts_number(StringInfo out, Datum value, Oid base, const char *name)
{
	switch (base)
	{
		case INT2OID:
			appendStringInfo(out, "%d", DatumGetInt16(value));
			return true;
		case INT4OID:
			appendStringInfo(out, "%d", DatumGetInt32(value));
			return true;
		case INT8OID:
			appendStringInfo(out, INT64_FORMAT, DatumGetInt64(value));
			return true;
		case NUMERICOID:
			facts_numeric(out, DatumGetNumeric(value), name);
			return true;
		case FLOAT4OID:
			facts_float(out, DatumGetFloat4(value), true, name);
			return true;
		case FLOAT8OID:
			facts_float(out, DatumGetFloat8(value), false, name);
			return true;
		default:
			return false;
	}
}

/* The other scalar kinds; false when the type is none. */
static bool
facts_scalar(StringInfo out, Datum value, Oid base, const char *name)
{
	Jsonb	   *document;

	switch (base)
	{
		case BOOLOID:
			appendStringInfoString(out, DatumGetBool(value) ? "true" : "false");
			return true;
		case UUIDOID:
			appendStringInfo(out, "\"%s\"",
							 DatumGetCString(DirectFunctionCall1(uuid_out, value)));
			return true;
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			facts_datetime(out, value, base);
			return true;
		case INTERVALOID:
			facts_interval(out, DatumGetIntervalP(value), name);
			return true;
		case BYTEAOID:
			facts_bytea(out, DatumGetByteaPP(value));
			return true;
		case JSONOID:
			appendStringInfoString(out, TextDatumGetCString(value));
			return true;
		case JSONBOID:
			document = DatumGetJsonbP(value);
			(void) JsonbToCString(out, &document->root, VARSIZE(document));
			return true;
		default:
			return false;
	}
}

/* One dimension of an array, and those within it; elements are taken in turn. */
static void
facts_dimension(StringInfo out, const int *dims, int ndim, Oid element,
				Datum **values, bool **nulls, const char *name)
{
	appendStringInfoChar(out, '[');
	for (int i = 0; i < dims[0]; i++)
	{
		if (i > 0)
			appendStringInfoChar(out, ',');
		if (ndim > 1)
			facts_dimension(out, dims + 1, ndim - 1, element, values, nulls, name);
		else
			facts_append(out, *(*values)++, *(*nulls)++, element, name);
	}
	appendStringInfoChar(out, ']');
}

/* An array, dimension within dimension; JSON has no lower bounds. */
static void
facts_array(StringInfo out, ArrayType *array, Oid element, const char *name)
{
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *values;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(element, &typlen, &typbyval, &typalign);
	deconstruct_array(array, element, typlen, typbyval, typalign, &values, &nulls, &count);
	if (count == 0)
		appendStringInfoString(out, "[]");
	else
		facts_dimension(out, ARR_DIMS(array), ARR_NDIM(array), element, &values, &nulls, name);
}

/* One value as JSON; its type is known to be accepted. */
static void
facts_append(StringInfo out, Datum value, bool isnull, Oid type, const char *name)
{
	Oid			base = getBaseType(type);
	Oid			element = get_element_type(base);
	char	   *string;

	if (isnull)
		appendStringInfoString(out, "null");
	else if (OidIsValid(element))
		facts_array(out, DatumGetArrayTypeP(value), element, name);
	else if ((string = facts_text(value, base)) != NULL)
		escape_json(out, string);
	else if (!facts_number(out, value, base, name) &&
			 !facts_scalar(out, value, base, name))
		elog(ERROR, "facts() has no form for type %u", base);
}

/*
 * Refuse a type whose text depends on settings or catalogs: an enum's label can
 * be renamed, money follows lc_monetary, a composite its table.  NULL is no
 * excuse, or the first value that is not NULL would find out in production.
 */
static void
facts_check_type(Oid type, const char *name)
{
	Oid			base = getBaseType(type);
	Oid			element = get_element_type(base);

	switch (OidIsValid(element) ? getBaseType(element) : base)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case UUIDOID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case BYTEAOID:
		case JSONOID:
		case JSONBOID:
			return;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("fact \"%s\" is of type %s, which facts() does not take",
							name, format_type_be(type)),
					 errdetail("Its text may depend on settings or on catalogs, so a key made of it could change."),
					 errhint("Cast it to text, numeric or another plain type yourself.")));
	}
}

/* The name of the n-th fact, counted from 1. */
static char *
facts_name(Datum value, bool isnull, Oid type, int n)
{
	char	   *name;

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name of fact %d must not be NULL", n),
				 errhint("Names and values alternate: facts('amount', 10.50, 'due', due_on).")));
	name = facts_text(value, getBaseType(type));
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("name of fact %d must be text, not %s", n, format_type_be(type)),
				 errhint("Names and values alternate: facts('amount', 10.50, 'due', due_on).")));
	if (name[strspn(name, " \t\r\n\v\f")] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("name of fact %d must not be blank", n),
				 errhint("Names and values alternate: facts('amount', 10.50, 'due', due_on).")));
	return name;
}

/* Say which of the names comes twice; jsonb has counted that one does. */
static void
facts_refuse_twice(char **names, int count)
{
	for (int i = 1; i < count; i++)
		for (int j = 0; j < i; j++)
			if (strcmp(names[i], names[j]) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_JSON_OBJECT_KEY_VALUE),
						 errmsg("fact \"%s\" is given twice", names[i]),
						 errdetail("The later value would replace the earlier one in silence."),
						 errhint("Give each fact a name of its own.")));
	elog(ERROR, "facts() lost a member");
}

/* The arguments, checked to come in pairs; returns the number of pairs. */
static int
facts_arguments(FunctionCallInfo fcinfo, Datum **values, Oid **types, bool **nulls)
{
	int			given = extract_variadic_args(fcinfo, 0, true, values, types, nulls);

	if (given < 0)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the array of facts must not be NULL"),
				 errhint("Names and values alternate: facts('amount', 10.50, 'due', due_on).")));
	if (given % 2 != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("facts() takes names and values in pairs, but got %d arguments", given),
				 errhint("Names and values alternate: facts('amount', 10.50, 'due', due_on).")));
	return given / 2;
}

/*
 * effect.facts(VARIADIC "any") returns jsonb
 *
 * Names and values in turn; a NULL value is JSON null.  Raises 22023 for an odd
 * number of arguments, a blank name, a number or interval that is not finite;
 * 22004 for a NULL name; 22030 for a name given twice; 42804 for a type that is
 * not accepted, which it names.
 */
Datum
effect_facts(PG_FUNCTION_ARGS)
{
	Datum	   *values;
	Oid		   *types;
	bool	   *nulls;
	int			count = facts_arguments(fcinfo, &values, &types, &nulls);
	char	  **names = palloc(sizeof(char *) * Max(count, 1));
	StringInfoData out;
	Jsonb	   *document;

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	for (int i = 0; i < count; i++)
	{
		int			n = 2 * i;

		names[i] = facts_name(values[n], nulls[n], types[n], i + 1);
		if (i > 0)
			appendStringInfoChar(&out, ',');
		facts_check_type(types[n + 1], names[i]);
		escape_json(&out, names[i]);
		appendStringInfoChar(&out, ':');
		facts_append(&out, values[n + 1], nulls[n + 1], types[n + 1], names[i]);
	}
	appendStringInfoChar(&out, '}');

	document = jsonb_from_text(out.data);
	if (JB_ROOT_COUNT(document) != count)
		facts_refuse_twice(names, count);
	PG_RETURN_JSONB_P(document);
}
