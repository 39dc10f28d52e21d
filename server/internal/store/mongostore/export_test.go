package mongostore

// AdoptHorizon gives s the horizon of other, as if one process had been told both.
func (s *Store) AdoptHorizon(other *Store) {
	at := other.horizon.get()
	s.horizon.raise(&at)
}

// TokenTime is tokenTime.
var TokenTime = tokenTime
