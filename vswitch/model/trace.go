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

// StartTrace records the paths of the next frames of an input node, on each worker.
func (m *Model) StartTrace(node uint32, frames int) error {
	if node < firstInputNode || node >= firstInputNode+uint32(forward.InputNodes) {
		return NoSuchNode
	}
	m.engine.StartTrace(forward.InputNode(node-firstInputNode), frames)
	return nil
}

// ClearTrace ends the recording and forgets the paths.
func (m *Model) ClearTrace() { m.engine.ClearTrace() }

// TracePaths returns the recorded paths of each worker in VPP's format.
func (m *Model) TracePaths() [][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.TracePaths(func(index uint32) string {
		if i := m.Interfaces.byIndex[index]; i != nil {
			return i.Name
		}
		return "interface " + strconv.Itoa(int(index)) + " (deleted)"
	})
}
