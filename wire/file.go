package wire

import (
	"io/fs"

	"github.com/weftnet/weft/internal/secret"
)

// FileType says what stands at a path.
type FileType string

// The types of a file.
const (
	Directory   FileType = "directory" // is removed with all that is in it
	RegularFile FileType = "file"      // is replaced as a whole, never seen half written
	Socket      FileType = "socket"    // is not Weft's to make and remove: only its mode and owner are ours
)

// File is a file of the node. Kind linux.file; its name is its absolute path. No link in its path is followed below its
// directory.
type File struct {
	Type    FileType    `json:"type"`
	Mode    fs.FileMode `json:"mode"`              // permissions, and fs.ModeSetgid
	UID     int         `json:"uid"`               // owner
	GID     int         `json:"gid"`               // group
	Content string      `json:"content,omitempty"` // of a regular file ...
	Secret  secret.Text `json:"secret,omitempty"`  // ... or this, which is never shown
	On      string      `json:"on,omitempty"`      // key of the object that it needs: its directory, or who makes the socket; "" = the directory is there
}

// FileKey is the key of the file at path.
func FileKey(path string) string { return Key(KindFile, path) }
