"""The part of AgentOps' API beside OTLP that its SDK calls: a token for the key, and uploads."""
