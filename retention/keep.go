package retention

import (
	"strconv"
	"strings"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Keep says what of a group stays. The zero value keeps everything.
//
// Versions from the bound on stay: the current one, those that a record may freeze,
// and those that are on their way. So do those that progress refers to. A bitmap
// stays while a version that stays has it: of versions before the bound that is one
// that the bound's own version has, or one of those that progress refers to, since a
// later version has it only if every one between has. A directory stays while a
// version of its generation, or of an earlier one, does.
type Keep struct {
	bound      Checkpoint
	generation uint64 // the earliest that stays
	versions   map[mailbox.GroupVersion]struct{}
	bitmaps    map[mailbox.BitmapRef]struct{}
	blobs      map[string]struct{}
}

// NewKeep decides for a group whose versions before bound may go, but for those
// that are referred to.
func NewKeep(bound *membership.Version, referred []*membership.Version) *Keep {
	k := &Keep{
		bound:      Checkpoint{Generation: bound.Generation, Version: bound.Version},
		generation: bound.Generation,
		versions:   map[mailbox.GroupVersion]struct{}{}, bitmaps: map[mailbox.BitmapRef]struct{}{}, blobs: map[string]struct{}{},
	}
	for _, v := range append([]*membership.Version{bound}, referred...) {
		k.generation = min(k.generation, v.Generation)
		k.versions[v.GroupVersion] = struct{}{}
		for i := range v.Shards {
			s := &v.Shards[i]
			if s.Blob != "" {
				k.blobs[s.Blob] = struct{}{}
				continue
			}
			of := v.GroupVersion
			of.Version = s.BitmapVersion
			k.bitmaps[mailbox.BitmapRef{GroupVersion: of, Shard: s.Shard}] = struct{}{}
		}
	}
	return k
}

// late reports whether a version is the bound's or after it: of an unknown group
// every one is. What a renumbering prepares is of a later generation.
func (k *Keep) late(generation, version uint64) bool {
	return version >= k.bound.Version || generation > k.bound.Generation
}

// Version reports whether a manifest stays.
func (k *Keep) Version(v mailbox.GroupVersion) bool {
	_, kept := k.versions[v]
	return kept || k.late(v.Generation, v.Version)
}

// Bitmap reports whether a bitmap stays.
func (k *Keep) Bitmap(b mailbox.BitmapRef) bool {
	_, kept := k.bitmaps[b]
	return kept || k.late(b.Generation, b.Version)
}

// Directory reports whether a generation's directory stays.
func (k *Keep) Directory(generation uint64) bool { return generation >= k.generation }

// Blob reports whether a blob stays; one that no build has named stays.
func (k *Keep) Blob(key string) bool {
	if _, kept := k.blobs[key]; kept {
		return true
	}
	_, generation, version, ok := blobOf(key)
	return !ok || k.late(generation, version)
}

// blobRoot is where the blobs of all groups are.
const blobRoot = "membership/"

// blobOf reads a blob's folder, as membership.BlobPrefix makes it: that of its group,
// and its version.
func blobOf(key string) (group string, generation, version uint64, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 5 || parts[0]+"/" != blobRoot {
		return "", 0, 0, false
	}
	generation, err := strconv.ParseUint(parts[2], 10, 64)
	version, err2 := strconv.ParseUint(parts[3], 10, 64)
	return blobRoot + parts[1] + "/", generation, version, err == nil && err2 == nil
}

// blobsOf is the folder of a group's blobs.
func blobsOf(g mailbox.Group) string {
	folder, _, _, _ := blobOf(membership.BlobPrefix(mailbox.GroupVersion{Group: g}) + "x")
	return folder
}
