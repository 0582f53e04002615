-- All zeros, or there was something to do.
SELECT 1 / cast(s = (0, 0, 0, 0, 0, 0, 0) AS int) AS ok FROM effect.sweep() AS s \gset
