package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/ident"
)

// apiKeys is the name of the collection of API keys.
const apiKeys = "api_keys"

// APIKeys implements apikey.Store. Safe for concurrent use. Reads are linearizable, as those of
// Channels are.
type APIKeys struct {
	calls *Channels
	keys  *mongo.Collection
}

var _ apikey.Store = (*APIKeys)(nil)

// APIKeys returns a store of API keys in the same database. It is closed with s.
func (s *Store) APIKeys() *APIKeys { return &APIKeys{s.Channels(), s.db.Collection(apiKeys)} }

// apiKeyDocument is the stored form of a key.
type apiKeyDocument struct {
	ID        string                    `bson:"_id"`
	Name      string                    `bson:"name"`
	Subject   string                    `bson:"subject"`
	Grants    map[string][]ident.Action `bson:"grants"`
	Created   time.Time                 `bson:"created"`
	CreatedBy string                    `bson:"created_by"`
	Expires   time.Time                 `bson:"expires"`
	Secrets   []apiSecretDocument       `bson:"secrets"`
	LastUsed  time.Time                 `bson:"last_used,omitempty"`
	Rev       int64                     `bson:"rev"`
}

type apiSecretDocument struct {
	Digest []byte    `bson:"digest"`
	Until  time.Time `bson:"until,omitempty"`
}

func apiSecretDocuments(secrets []apikey.Secret) []apiSecretDocument {
	docs := make([]apiSecretDocument, len(secrets))
	for i := range secrets {
		docs[i] = apiSecretDocument{secrets[i].Digest[:], secrets[i].Until}
	}
	return docs
}

func (d *apiKeyDocument) key() apikey.Key {
	k := apikey.Key{
		ID: d.ID, Name: d.Name, Subject: d.Subject, Grants: d.Grants, Created: d.Created.UTC(), CreatedBy: d.CreatedBy, Expires: d.Expires.UTC(),
		Rev: d.Rev, Secrets: make([]apikey.Secret, len(d.Secrets)),
	}
	if !d.LastUsed.IsZero() {
		k.LastUsed = d.LastUsed.UTC()
	}
	for i := range d.Secrets {
		copy(k.Secrets[i].Digest[:], d.Secrets[i].Digest)
		if until := d.Secrets[i].Until; !until.IsZero() {
			k.Secrets[i].Until = until.UTC()
		}
	}
	return k
}

// Create implements apikey.Store. Calls at the same moment may exceed the limit.
func (a *APIKeys) Create(ctx context.Context, k apikey.Key, forget time.Time, limit int) error {
	doc := apiKeyDocument{
		ID: k.ID, Name: k.Name, Subject: k.Subject, Grants: k.Grants, Created: k.Created, CreatedBy: k.CreatedBy, Expires: k.Expires,
		Secrets: apiSecretDocuments(k.Secrets), LastUsed: k.LastUsed, Rev: k.Rev,
	}
	err := a.calls.store.read(ctx, func(ctx context.Context) error {
		if _, err := a.keys.DeleteMany(ctx, bson.D{{Key: "expires", Value: bson.D{{Key: "$lt", Value: forget}}}}); err != nil {
			return err
		}
		n, err := a.keys.CountDocuments(ctx, bson.D{}, options.Count().SetLimit(int64(limit)))
		if err != nil {
			return err
		}
		if n >= int64(limit) {
			return apikey.ErrFull
		}
		_, err = a.keys.InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			err = a.inserted(ctx, &doc)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create API key: %w", err)
	}
	return nil
}

// inserted returns nil if the document was inserted by an earlier attempt, whose answer was lost.
func (a *APIKeys) inserted(ctx context.Context, doc *apiKeyDocument) error {
	n, err := a.keys.CountDocuments(ctx, bson.D{{Key: "_id", Value: doc.ID}, {Key: "secrets.digest", Value: doc.Secrets[0].Digest}})
	if err == nil && n == 0 {
		err = errors.New("another API key has this id")
	}
	return err
}

// Get implements apikey.Store.
func (a *APIKeys) Get(ctx context.Context, id string) (apikey.Key, error) {
	var d apiKeyDocument
	err := a.calls.read(ctx, func(ctx context.Context) error {
		err := a.keys.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&d)
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = apikey.ErrNotFound
		}
		return err
	})
	if err != nil {
		return apikey.Key{}, fmt.Errorf("get API key: %w", err)
	}
	return d.key(), nil
}

// SetSecrets implements apikey.Store.
func (a *APIKeys) SetSecrets(ctx context.Context, id string, rev int64, secrets []apikey.Secret) error {
	err := a.calls.write(ctx, func(ctx context.Context) error {
		result, err := a.keys.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "rev", Value: rev}}, bson.D{
			{Key: "$set", Value: bson.D{{Key: "secrets", Value: apiSecretDocuments(secrets)}}},
			{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}},
		})
		if err != nil || result.MatchedCount == 1 {
			return err
		}
		return a.missing(ctx, id)
	})
	if err != nil {
		return fmt.Errorf("set the secrets of an API key: %w", err)
	}
	return nil
}

// missing returns why no document had the id and the expected rev.
func (a *APIKeys) missing(ctx context.Context, id string) error {
	n, err := a.keys.CountDocuments(ctx, bson.D{{Key: "_id", Value: id}})
	switch {
	case err != nil:
		return err
	case n == 0:
		return apikey.ErrNotFound
	default:
		return apikey.ErrChanged
	}
}

// Used implements apikey.Store.
func (a *APIKeys) Used(ctx context.Context, at map[string]time.Time) error {
	if len(at) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, 0, len(at))
	for id, used := range at {
		models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).
			SetUpdate(bson.D{{Key: "$max", Value: bson.D{{Key: "last_used", Value: used}}}}))
	}
	err := a.calls.write(ctx, func(ctx context.Context) error {
		_, err := a.keys.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		return err
	})
	if err != nil {
		return fmt.Errorf("store the uses of API keys: %w", err)
	}
	return nil
}

// List implements apikey.Store.
func (a *APIKeys) List(ctx context.Context, after string, limit int) (keys []apikey.Key, err error) {
	err = a.calls.read(ctx, func(ctx context.Context) error {
		cursor, err := a.keys.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}}},
			options.Find().SetSort(up("_id")).SetLimit(int64(limit)))
		if err != nil {
			return err
		}
		var docs []apiKeyDocument
		if err := cursor.All(ctx, &docs); err != nil {
			return err
		}
		keys = make([]apikey.Key, len(docs))
		for i := range docs {
			keys[i] = docs[i].key()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	return keys, nil
}
