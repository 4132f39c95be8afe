"""OTLP: OpenTelemetry spans of agents, from files and over HTTP."""
