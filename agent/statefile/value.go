package statefile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// compressFrom is the size from which values are compressed. A list of rules may have a megabyte, most of it the
	// same words.
	compressFrom = 16 << 10
	// maxValue bounds the expanded size of a damaged value.
	maxValue = 256 << 20
)

// encode returns the form of a value in the file: JSON, which is compressed if it is large.
func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) < compressFrom {
		return raw, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode reads what encode returned. JSON does not begin with the first byte of compressed data.
func decode(b []byte, into any) error {
	if len(b) > 0 && b[0] == 0x1f {
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("decompress: %w", err)
		}
		if b, err = io.ReadAll(io.LimitReader(r, maxValue+1)); err != nil {
			return fmt.Errorf("decompress: %w", err)
		}
		if len(b) > maxValue {
			return fmt.Errorf("more than %d bytes", maxValue)
		}
	}
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return errors.New("value is null")
	}
	return json.Unmarshal(b, into)
}
