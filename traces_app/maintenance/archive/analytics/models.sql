-- Requests to each model, their tokens, their cost in USD, and how many have no known cost.
WITH counted AS (
    SELECT
        project,
        model,
        cost,
        json_extract(usage, ['$.input_tokens', '$.prompt_tokens', '$.inputTokens', '$.promptTokens']) AS tokens_in,
        json_extract(usage, ['$.output_tokens', '$.completion_tokens', '$.outputTokens', '$.completionTokens']) AS tokens_out
    FROM steps
    WHERE NOT in_trash
)
SELECT
    project,
    model,
    count(*) AS steps,
    -- The first count among the names. A text of digits is no number.
    sum(coalesce(CAST(list_filter(tokens_in, lambda x: regexp_full_match(CAST(x AS VARCHAR), '[0-9]{1,12}'))[1] AS BIGINT), 0))
        AS input_tokens,
    sum(coalesce(CAST(list_filter(tokens_out, lambda x: regexp_full_match(CAST(x AS VARCHAR), '[0-9]{1,12}'))[1] AS BIGINT), 0))
        AS output_tokens,
    sum(cost) AS cost,
    count(*) - count(cost) AS unpriced
FROM counted
GROUP BY project, model
ORDER BY project, model
