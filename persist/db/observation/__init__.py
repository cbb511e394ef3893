"""What a store counts about itself, and where its transactions and statements are told to who watches them."""
