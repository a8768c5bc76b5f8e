package operations

import (
	"log/slog"
	"sync"
	"time"
)

// LogLevel is the level of the agent's log. Operators can change it until the agent ends, or for some time.
type LogLevel struct {
	slog.LevelVar

	configured slog.Level

	mu    sync.Mutex
	timer *time.Timer // resets the level, or nil
	until time.Time
}

// NewLogLevel returns a level with a configured name. Unknown names, which the validation of the configuration refuses,
// are "info".
func NewLogLevel(name string) *LogLevel {
	l := &LogLevel{}
	if err := l.configured.UnmarshalText([]byte(name)); err != nil {
		l.configured = slog.LevelInfo
	}
	l.Set(l.configured)
	return l
}

// Change sets the level. After the duration, if it is not 0, the level is the configured one again.
func (l *LogLevel) Change(level slog.Level, duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.Set(level)
	l.timer = nil
	l.until = time.Time{}
	if duration <= 0 {
		return
	}
	l.until = time.Now().Add(duration)
	l.timer = time.AfterFunc(duration, func() { l.reset(level) })
}

// reset returns to the configured level, unless another change has replaced the one to level.
func (l *LogLevel) reset(level slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Level() == level && !l.until.IsZero() && !time.Now().Before(l.until) {
		l.Set(l.configured)
		l.timer = nil
		l.until = time.Time{}
	}
}

// Until returns when the configured level returns; zero if it does not.
func (l *LogLevel) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func levelName(level slog.Level) string {
	for name, known := range map[string]slog.Level{
		"debug": slog.LevelDebug,
		"info":  slog.LevelInfo,
		"warn":  slog.LevelWarn,
		"error": slog.LevelError,
	} {
		if level == known {
			return name
		}
	}
	return level.String()
}
