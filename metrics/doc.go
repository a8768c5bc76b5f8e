// Package metrics keeps what Prometheus is told about an agent.
package metrics
