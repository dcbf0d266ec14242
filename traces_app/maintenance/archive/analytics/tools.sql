-- Calls of each tool by day (UTC) of their message: calls, failures, share of the finished calls that failed, durations.
SELECT
    calls.project,
    calls.tool,
    CAST(messages.created_at AS DATE) AS day,
    count(*) AS calls,
    count(CASE WHEN calls.status = 'error' THEN 1 END) AS failures,
    CAST(count(CASE WHEN calls.status = 'error' THEN 1 END) AS DOUBLE)
        / nullif(count(CASE WHEN calls.status <> 'pending' THEN 1 END), 0) AS error_rate,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY calls.duration_ms) AS p50_ms,
    percentile_disc(0.95) WITHIN GROUP (ORDER BY calls.duration_ms) AS p95_ms,
    percentile_disc(0.99) WITHIN GROUP (ORDER BY calls.duration_ms) AS p99_ms
FROM calls
JOIN messages ON messages.id = calls.message_id
WHERE NOT calls.in_trash
GROUP BY calls.project, calls.tool, CAST(messages.created_at AS DATE)
ORDER BY calls.project, calls.tool, day
