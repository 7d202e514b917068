// An OpenID provider with one client: the tests' log-in. Its first argument is a file of settings.
import { readFileSync } from 'node:fs';
import Provider from 'oidc-provider';

const given = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const provider = new Provider(given.issuer, {
  clients: [{
    client_id: given.client,
    client_secret: given.secret,
    redirect_uris: [given.redirect],
    grant_types: ['authorization_code'],
    response_types: ['code'],
  }],
  pkce: { required: () => true },
  claims: { openid: ['sub', 'email', 'email_verified'] },
  conformIdTokenClaims: false,
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.org`, email_verified: id !== 'mallory' }),
  }),
});
provider.listen(given.port, '127.0.0.1');
