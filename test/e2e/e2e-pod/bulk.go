package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// bulkPatience is the timeout of a transfer.
const bulkPatience = time.Minute

// bulk sends BYTES to a server that echoes, and fails unless it gets the same bytes back.
func bulk(out io.Writer, arguments []string) error {
	if len(arguments) != 2 {
		return errors.New("usage: bulk HOST:PORT BYTES")
	}
	size, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", arguments[0], patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(bulkPatience)); err != nil {
		return err
	}
	started := time.Now()
	sent := sha256.New()
	back := sha256.New()
	sending := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(conn, sent), io.LimitReader(rand.NewChaCha8([32]byte{}), size))
		sending <- err
	}()
	if _, err := io.CopyN(back, conn, size); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if err := <-sending; err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if !bytes.Equal(sent.Sum(nil), back.Sum(nil)) {
		return errors.New("the echo differs from the data")
	}
	_, err = fmt.Fprintf(out, "%.0f Mbit/s each way\n", float64(size)*8/1e6/time.Since(started).Seconds())
	return err
}
