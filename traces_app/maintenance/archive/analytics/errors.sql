-- Groups of equal errors of failed calls: how often, of how many tools, in how many sessions, and when first and last (UTC).
SELECT
    calls.project,
    results.error_pattern,
    count(*) AS calls,
    count(DISTINCT calls.tool) AS tools,
    count(DISTINCT calls.session_id) AS sessions,
    min(messages.created_at) AS first_seen,
    max(messages.created_at) AS last_seen
FROM calls
JOIN results ON results.id = calls.id
JOIN messages ON messages.id = calls.message_id
WHERE calls.status = 'error' AND NOT calls.in_trash
GROUP BY calls.project, results.error_pattern
ORDER BY calls DESC, calls.project, results.error_pattern
