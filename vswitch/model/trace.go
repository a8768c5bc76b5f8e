package model

import (
	"strconv"

	"github.com/weftnet/weft/vswitch/forward"
)

// The graph nodes of VPP that a trace can start at have these indexes here.
const firstInputNode = 1

// InputNodeIndex returns the index of an input node by name, NoSuchNode for another name.
func InputNodeIndex(name string) (uint32, error) {
	for n := range forward.InputNodes {
		if n.String() == name {
			return firstInputNode + uint32(n), nil
		}
	}
	return NoIndex, NoSuchNode
}

// Trace holds the last frames that a port received.
type Trace struct {
	Name  string
	Lines []string
}

// Traces are the records of the packets that ports received, and of their paths.
type Traces struct {
	*barrier
	interfaces *Interfaces
	frames     int // maximum number of frames per port in List
}

// SetFrames sets the maximum number of frames per port in List. The packet path always records the last frames.
func (ts *Traces) SetFrames(frames int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.frames = frames
}

// List lists the ports that have received frames, with the last frames.
func (ts *Traces) List() []Trace {
	return listInterfaces(ts.interfaces, NoIndex, func(i *iface) (t Trace, ok bool) {
		if ts.frames > 0 && i.hasPort() {
			t = Trace{Name: i.Name, Lines: ts.engine.Trace(i.Index, ts.frames)}
		}
		return t, len(t.Lines) > 0
	})
}

// Start records the paths of the next frames of an input node, on each worker.
func (ts *Traces) Start(node uint32, frames int) error {
	if node < firstInputNode || node >= firstInputNode+uint32(forward.InputNodes) {
		return NoSuchNode
	}
	ts.engine.StartTrace(forward.InputNode(node-firstInputNode), frames)
	return nil
}

// Clear ends the recording and forgets the paths.
func (ts *Traces) Clear() { ts.engine.ClearTrace() }

// Paths returns the recorded paths of each worker in VPP's format.
func (ts *Traces) Paths() [][]string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.engine.TracePaths(func(index uint32) string {
		if i := ts.interfaces.byIndex[index]; i != nil {
			return i.Name
		}
		return "interface " + strconv.Itoa(int(index)) + " (deleted)"
	})
}
