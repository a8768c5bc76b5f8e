package memif

import "context"

// clientAcceptor yields the connections of a Client that listens, one after another: an Interface has one at a time,
// until its release.
type clientAcceptor struct {
	config   ClientConfig
	listener *Listener
	accepted chan *Conn
}

// next waits for a connection. It binds the socket first, until that succeeds.
func (a *clientAcceptor) next(ctx context.Context) (*Conn, error) {
	if a.listener == nil {
		if err := a.listen(); err != nil {
			return nil, err
		}
	}
	select {
	case conn := <-a.accepted:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *clientAcceptor) listen() (err error) {
	c := a.config
	if a.listener, err = Listen(c.Socket, ListenOptions{Name: c.Program}); err != nil {
		return err
	}
	a.accepted = make(chan *Conn, 1)
	_, err = a.listener.Add(Config{
		ID: c.ID, Secret: c.Secret, Mode: c.Mode, Name: c.Name,
		RxQueues: c.RxQueues, TxQueues: c.TxQueues, RingSize: c.RingSize, MaxPacket: c.MaxPacket,
		Connected:    a.take,
		Disconnected: func(*Conn, error) {}, // Conn.Gone tells
	})
	return err
}

// take takes a connection over, unless its peer made no queue in a direction.
func (a *clientAcceptor) take(conn *Conn) {
	if len(conn.rx) > 0 && len(conn.tx) > 0 {
		a.accepted <- conn
		return
	}
	conn.breakOff(refusal("a queue in each direction is needed"))
	conn.Release()
}

// close removes the socket.
func (a *clientAcceptor) close() {
	if a.listener == nil {
		return
	}
	_ = a.listener.Close()
	select {
	case conn := <-a.accepted:
		conn.Release()
	default:
	}
}
