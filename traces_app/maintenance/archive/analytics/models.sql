-- Requests to each model, their tokens, their cost in USD, and how many have no known cost.
SELECT
    project,
    model,
    count(*) AS steps,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(cost) AS cost,
    count(*) - count(cost) AS unpriced
FROM steps
WHERE NOT in_trash
GROUP BY project, model
ORDER BY project, model
