package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a configuration: a list of valid attachments of a large node has some tens of kilobytes.
const (
	maxConfBytes = 1 << 20
	maxConfDepth = 32
)

// scan refuses what encoding/json would take in silence: keys given twice, of which
// the last would win, and documents of absurd size or depth.
func scan(document []byte) error {
	if len(document) > maxConfBytes {
		return fmt.Errorf("more than %d bytes", maxConfBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var open nesting
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if err := open.take(token); err != nil {
			return err
		}
	}
}

// nesting are the objects and arrays that a token stands in.
type nesting []*level

type level struct {
	seen  map[string]bool // keys so far; nil in an array
	value bool            // the next token is the value of a key
}

func (n *nesting) take(token json.Token) error {
	delimiter, _ := token.(json.Delim)
	if delimiter == '}' || delimiter == ']' {
		*n = (*n)[:len(*n)-1]
		return nil
	}
	if err := n.place(token); err != nil {
		return err
	}
	if delimiter == 0 {
		return nil
	}
	if len(*n) == maxConfDepth {
		return fmt.Errorf("nested deeper than %d", maxConfDepth)
	}
	inner := &level{}
	if delimiter == '{' {
		inner.seen = make(map[string]bool)
	}
	*n = append(*n, inner)
	return nil
}

// place notes a token in what it stands in: in an object, keys and values take turns.
func (n *nesting) place(token json.Token) error {
	if len(*n) == 0 {
		return nil
	}
	in := (*n)[len(*n)-1]
	if in.seen == nil {
		return nil
	}
	if in.value {
		in.value = false
		return nil
	}
	key, _ := token.(string)
	if in.seen[key] {
		return fmt.Errorf("key %q is given twice", key)
	}
	in.seen[key], in.value = true, true
	return nil
}
