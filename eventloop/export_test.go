package eventloop

import "time"

// Limits are the limits of a loop that tests change.
type Limits struct {
	Queue, Records, HistoryBytes int
	MinHealing, MaxHealing       time.Duration
}

// Limit changes limits of a loop to be; 0 keeps the usual one.
func (c *Config) Limit(to Limits) {
	changed := usual
	if c.limits != nil {
		changed = *c.limits
	}
	set(&changed.queue, to.Queue)
	set(&changed.records, to.Records)
	set(&changed.historyBytes, to.HistoryBytes)
	set(&changed.minHealing, to.MinHealing)
	set(&changed.maxHealing, to.MaxHealing)
	c.limits = &changed
}

func set[T int | time.Duration](limit *T, to T) {
	if to != 0 {
		*limit = to
	}
}
