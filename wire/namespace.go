package wire

// Namespace is a network namespace that another component made and that ours stand in. Kind linux.netns; its name is the
// path. It is never made or removed: to create it is to find it there, with the inode it had when the pod was added.
// When it is gone, what depends on it goes too, so that a tap held open by the dataplane does not keep it alive.
type Namespace struct {
	Path   string `json:"path"`
	Inode  uint64 `json:"inode"`
	Device uint64 `json:"device"`
}

// NamespaceKey is the key of the namespace at path.
func NamespaceKey(path string) string { return Key(KindNamespace, path) }
