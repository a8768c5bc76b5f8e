package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// sse writes server-sent events. JSON contains no line breaks, so an event is one line of data.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s sse) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// comment writes a line that clients ignore.
func (s sse) comment() error { return s.write(":\n\n") }

func (s sse) event(e *operatorv1.EventRecord) error {
	data, err := json.Marshal(row(e))
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %d\ndata: %s\n\n", e.Seq, data))
}
