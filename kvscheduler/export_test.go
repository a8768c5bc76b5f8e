package kvscheduler

import "time"

// Limits are the limits of a scheduler that tests change.
type Limits struct {
	Batch, Records, LogBytes int
	RetryMin, RetryMax       time.Duration
	RetryBurst               int
	NoJitter                 bool
}

// Limited returns a configuration with changed limits.
func Limited(to Limits) Config {
	var c Config
	c.Limit(to)
	return c
}

// Limit changes limits of a scheduler to be; 0 keeps the usual one.
func (c *Config) Limit(to Limits) {
	changed := usual
	if c.limits != nil {
		changed = *c.limits
	}
	set(&changed.batch, to.Batch)
	set(&changed.records, to.Records)
	set(&changed.logBytes, to.LogBytes)
	set(&changed.retry.min, to.RetryMin)
	set(&changed.retry.max, to.RetryMax)
	set(&changed.retry.burst, to.RetryBurst)
	if to.NoJitter {
		changed.retry.jitter = 0
	}
	c.limits = &changed
}

func set[T int | time.Duration](limit *T, to T) {
	if to != 0 {
		*limit = to
	}
}
