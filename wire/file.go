package wire

import (
	"io/fs"

	"github.com/weftnet/weft/internal/secret"
)

// FileType is the type of a file.
type FileType string

// The types of a file.
const (
	Directory   FileType = "directory" // removed with its contents
	RegularFile FileType = "file"      // replaced atomically
	Socket      FileType = "socket"    // another process makes it; the object sets mode and owner only
)

// File is a file of the node. Kind linux.file; its name is its absolute path. Symbolic links in directories that users
// other than root can change are not followed.
type File struct {
	Type    FileType    `json:"type"`
	Mode    fs.FileMode `json:"mode"`              // permissions, and fs.ModeSetgid
	UID     int         `json:"uid"`               // owner
	GID     int         `json:"gid"`               // group
	Content string      `json:"content,omitempty"` // of a regular file
	Secret  secret.Text `json:"secret,omitempty"`  // redacted content of a regular file, instead of Content
	On      string      `json:"on,omitempty"`      // key of a dependency: its directory, or the object that makes the socket; "": the directory exists
}

// FileKey returns the key of the file at path.
func FileKey(path string) string { return Key(KindFile, path) }
