package presence

import "math/bits"

// Platform is the kind of system that a device runs. The values are those of parley.v1.Platform.
type Platform uint8

// The platforms.
const (
	IOS Platform = iota + 1
	Android
	IPadOS
	AndroidTablet
	Windows
	MacOS
	Linux
	Web
	Other
)

// MaxPlatform is the highest platform.
const MaxPlatform = Other

// Valid reports whether p is one of the platforms.
func (p Platform) Valid() bool { return p >= IOS && p <= MaxPlatform }

// State is the set of platforms on which a user is online, and which of them are in the
// background. The zero value is offline. States are equal if == says so.
//
// Bit p is set if the user is online on platform p, bit 16+p if that platform is in the background
// too.
type State uint32

const backgroundShift = 16

// Online reports whether the user is online on any platform.
func (s State) Online() bool { return s != 0 }

// Has reports whether the user is online on p.
func (s State) Has(p Platform) bool { return s&(1<<p) != 0 }

// Background reports whether the user is online on p with all devices in the background.
func (s State) Background(p Platform) bool { return s&(1<<(backgroundShift+p)) != 0 }

// platforms returns the platforms without their background flags. Two states with the same
// platforms differ at most in these.
func (s State) platforms() State { return s & (1<<backgroundShift - 1) }

// Len returns the number of platforms on which the user is online.
func (s State) Len() int { return bits.OnesCount32(uint32(s.platforms())) }

// With returns the state after one more device is online on p. A platform is in the background only
// if all its devices are.
func (s State) With(p Platform, background bool) State {
	flag := State(1) << (backgroundShift + p)
	switch {
	case !background:
		s &^= flag
	case !s.Has(p):
		s |= flag
	}
	return s | 1<<p
}

// withMissing returns the state with the platforms of other that s lacks, as they are in other.
func (s State) withMissing(other State) State {
	missing := other.platforms() &^ s.platforms()
	return s | other&(missing|missing<<backgroundShift)
}

// All calls yield for each platform of the state in ascending order, until yield returns false.
func (s State) All(yield func(p Platform, background bool) bool) {
	for p := IOS; p <= MaxPlatform; p++ {
		if s.Has(p) && !yield(p, s.Background(p)) {
			return
		}
	}
}
