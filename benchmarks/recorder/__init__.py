"""What the recorder costs an agent, beside OpenTelemetry's batching processor in the same run."""
